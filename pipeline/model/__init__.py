"""The decoder. It knows nothing of ranks: the sequence exchange is handed to it."""
