"""Replication monitoring: how far behind every queue of every peer is, ours or not, and why.

    collect    one look at a cluster, of whatever answers: ZooKeeper, GetClusterStatus, JMX, sizes of logs
    model      what a look shows
    summary    a peer in one row: worst, median, sum; trend and time to catch up between two looks
    wait       all that was written before an instant has been delivered: the criterion

`load_reports`, `jmx`, `wal_sizes` and `sinks` are the sources, each optional; `reasons` says what a queue
waits for. `tables` sorts and filters rows for people, `metrics` shows a look to Prometheus, `history` keeps
looks in a file, for pictures. `sources` opens all of them for a cluster's key.
"""
