"""Subscriptions, kept in the ZooKeeper of the cluster that they follow.

`paths` names their nodes, `kept` reads what is in them; `source` opens the cluster, `wanted_peer` says which
peer it has to have. `steps` makes and removes one, `commands` does what a user asks for, `states` says how
they stand.
"""
