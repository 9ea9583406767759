"""Loaders under faults: worlds, stepped runs, contract of sinks."""
