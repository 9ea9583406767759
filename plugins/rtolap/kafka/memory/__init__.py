"""Kafka's deterministic twin: logs in memory, for tests; it passes the same contract suite as the broker."""
