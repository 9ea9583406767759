"""A module a revision, `r<number>_<what>.py`, in the order of their numbers."""
