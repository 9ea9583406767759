"""`rtolap sep`: HBase change capture. `commands` mounts them all; `cluster` finds the HBase that is meant;
`status`, `wait` and `plot` watch replication.
"""
