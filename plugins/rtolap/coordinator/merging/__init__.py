"""Merges of segments: planned, checked and committed, and what they leave cleaned up."""
