"""Farsight: train short, test long, under every position encoding, with nothing else different."""
