"""What a run leaves to load again."""
