"""Deferrable sensors: the queue, watermarks, windows, loaded tables."""
