"""Hostile users: generated requests against every server, and what must hold meanwhile."""
