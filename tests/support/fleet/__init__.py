"""Fleets drawn from a seed, a slow cluster that does what a plan says, and brokers' metrics in memory."""
