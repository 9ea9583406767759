"""Kafka in memory, deterministic, for tests; it passes the same contract suite as the broker."""
