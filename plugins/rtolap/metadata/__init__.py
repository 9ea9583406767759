"""Cluster state: what the services agree on, kept in ZooKeeper (or in memory, for tests).

`paths` names every znode; `records` gives their contents; `store` is the seam, `zookeeper` and `memory`
its two implementations under one contract suite; `segments` and `assignments` are pure functions that
turn a record into the next one. A change is requirements + updates, committed by version check:
CommitConflict means re-read and retry, CommitUnknown means read back before acting.
"""
