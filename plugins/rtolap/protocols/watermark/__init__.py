"""Watermarks of applications over REST: the messages of requests that `protocols.coordinator.calls` has."""
