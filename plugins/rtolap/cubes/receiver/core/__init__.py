"""The core of one cube: what one thread reads, counts, closes and checkpoints."""
