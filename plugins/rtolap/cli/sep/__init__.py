"""`rtolap sep`: HBase change capture. `commands` mounts them all; `cluster` finds the HBase that is meant;
`serve` runs a process of a subscription, `dead_letters` lists what it gave up;
`status`, `wait` and `plot` watch replication.
"""
