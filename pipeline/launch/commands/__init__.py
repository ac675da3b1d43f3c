"""The commands of `python -m pipeline`, by what they do."""
