"""The life of brokers: one state for the machine and the broker on it, changed by operations alone.

`states` is the table, and what is kept of each broker in ZooKeeper, with an audit entry for every change;
`brokers` performs operations: it commits the change with its entry, then executes the actions that the table
orders, and goes on with them after a crash. `observations` says what a snapshot shows that happened by
itself, and what has to hold before an operation, `policies` what should be done about disks that fail and
brokers that are slow; these two are pure. `actions` changes a cluster.

Nobody sets a state by hand: what is written anywhere else about a broker is not true here.
"""
