"""JSON bodies of loads."""
