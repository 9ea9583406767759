"""Cubes with READY versions to publish, and catalogs to publish to."""
