"""Replication monitoring shows how far behind every queue of every peer is, ours or not, and why.

    collect    one look at a cluster, of whatever answers: ZooKeeper, GetClusterStatus, JMX, sizes of logs
    model      what a look shows, and what a queue waits for
    summary    a peer in one row: worst, median, sum; trend and time to catch up between two looks
    wait       all that was written before an instant has been delivered: the criterion

`sources` opens what a look is made of for a cluster's key, `jmx` reads servers' own pages. `tables` sorts and
filters rows for people, `metrics` shows a look to Prometheus, `history` keeps looks in a file, for pictures.
"""
