"""Subscriptions, stored in the ZooKeeper of the cluster that they follow.

`records` names their nodes and reads them; `source` opens the cluster. `steps` makes and removes a
subscription with its peer in HBase. `commands` has the commands of users, `states` the states.
"""
