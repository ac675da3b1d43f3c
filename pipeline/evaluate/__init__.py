"""The length protocols: suffix, sliding, non-overlapping and per-position loss, window control."""
