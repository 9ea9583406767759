"""The mover carries out a plan on a running cluster, and leaves nothing behind.

One mover at a time works at a cluster, by lease. It stores each step in ZooKeeper before it takes it, and
looks at the brokers before it trusts what it has stored. After a mover is killed at any point, another one
goes on, and all that was set is removed.

`states` are the lives of a move and of a plan; `records` the stored state of a plan, `store` its place;
`planned` the moves of a plan; `look` the state of the brokers; `advance` the next steps, a pure function of
those; `window` the moves that may begin, `produce_latency` how many of them by produce times; `throttles` the
throttled replicas; `requests` the signed requests of people; `mover` does it all; `status` shows the
progress.

It never deletes a topic, never lowers a replication factor, and cancels only what it has begun itself.
"""
