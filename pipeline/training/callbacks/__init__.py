"""One callback per file."""
