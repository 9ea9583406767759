"""Validation of definitions: pure functions that list every problem with the way to it."""
