"""`rtolap sep` captures changes of HBase. `commands` has the commands about subscriptions and mounts the
others; `serve` runs a process of a subscription; `status` watches replication, also until all is
delivered, and draws it; `cluster` finds the named HBase."""
