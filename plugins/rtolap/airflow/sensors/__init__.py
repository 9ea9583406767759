"""Deferrable sensors, which wait for the queue, watermarks, windows and loaded tables."""
