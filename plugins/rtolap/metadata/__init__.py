"""Cluster state: what the services agree on, kept in ZooKeeper.

`paths` names every znode; `records` gives their contents; `store` is the seam, `zookeeper` (over a
`zookeeper_session`) its implementation, under the contract suite that a twin in memory passes too; `election`
and `dispatch` are beneath it. Services use `cubes.ClusterMetadata`, typed reads and changes (with those of
`definitions` and `members`), and `view.SegmentView`, a cube's records kept fresh. `segments` holds the
changes of a segment's record, as pure functions, `segment_batches` those that batches make, and
`segment_events` the step that all of them take. `segment_nodes` says where a record stands: in a node of its
own, with pieces beside it where it is large, or settled in a page of many, with its vectors in a file;
`segment_format` is how they are divided, and `merging` says which versions share files.

A change is requirements + updates, committed by version check: CommitConflict means re-read and retry,
CommitUnknown means read back before acting; `updates.retried` does both, so a change must be idempotent.
Nothing in here talks to Kafka or to another service, nor to files but through the seam in
`segment_format.vectors`.
"""
