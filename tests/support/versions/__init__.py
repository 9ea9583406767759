"""Messages and records of two versions: which there are, drawn ones, and those that a release has written."""
