"""The command line, and how a configuration becomes ranks at work."""
