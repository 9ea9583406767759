"""Tutorials of the documentation, run as they stand."""
