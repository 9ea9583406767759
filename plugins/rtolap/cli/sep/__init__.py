"""`rtolap sep`: HBase change capture. `commands` has those about subscriptions and mounts the others; `serve`
runs a process of a subscription, `status` watches replication, also until all is delivered, and draws it.
`cluster` finds the HBase that is meant.
"""
