"""Cluster state: what the services agree on, kept in ZooKeeper (or in memory, for tests).

`paths` names every znode; `records` gives their contents; `store` is the seam, `zookeeper` (over a
`zookeeper_session`) and `memory` its two implementations under one contract suite, with `election` and
`dispatch` beneath them. Services use `cubes.ClusterMetadata`, typed reads and changes (with those of
`definitions`), and `view.SegmentView`, a cube's records kept fresh. `segments` holds the changes of a
segment's record, as pure functions.

A change is requirements + updates, committed by version check: CommitConflict means re-read and retry,
CommitUnknown means read back before acting; `updates.retrying` does both, so a change must be idempotent.
Nothing in here talks to Kafka, to files or to another service.
"""
