"""Retirement of receivers: `drains` (a replica set's partitions move to others), `removals` (of replica sets
and receivers that nothing depends on any more)."""
