"""Closing segments: which ones, at which offsets, and how that is committed."""
