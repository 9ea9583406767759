"""The sinks of a loader: the seam, and its deterministic twin."""
