"""What a run leaves behind: its folder, its metrics, its environment, and the copy on W&B."""
