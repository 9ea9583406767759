"""Subscriptions, kept in the ZooKeeper of the cluster that they follow.

`kept` names their nodes and reads what is in them; `source` opens the cluster. `steps` makes and removes one,
with the peer that HBase has to have for it; `commands` does what a user asks for, `states` says how they
stand.
"""
