"""The messages of the coordinator's protocol by subject; `wire.coordinator` is their one door."""
