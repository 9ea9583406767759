"""Merges in seeded runs of a cluster in one process."""
