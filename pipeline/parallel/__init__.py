"""Ranks: the mesh of sequence groups, the Ulysses exchange, and sums over ranks."""
