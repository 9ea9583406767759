"""Fleets that are drawn from a seed, and a slow cluster that does what a plan says, move by move."""
