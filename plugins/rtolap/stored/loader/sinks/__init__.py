"""Where a loader brings rows: the seam, and its deterministic twin."""
