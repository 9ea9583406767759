"""Sorted files: blocks, zones and bloom filters on disk (FORMAT.md has the bytes)."""
