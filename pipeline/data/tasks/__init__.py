"""Synthetic tasks with exact answers, built of tokens: trained short, tested long."""
