"""Clusters whose metadata is lost and restored."""
