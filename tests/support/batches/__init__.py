"""Batches for tests: drawn ones, staged as Spark stages them, and empty ones by hand."""
