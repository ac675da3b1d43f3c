"""What a run would need, said before it is started. Nothing is trained and nothing written."""
