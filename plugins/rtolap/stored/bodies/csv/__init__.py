"""CSV bodies of loads."""
