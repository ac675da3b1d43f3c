"""Changes made to a trained encoding when it is tested; one file each."""
