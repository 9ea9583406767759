"""Subscriptions, kept in the ZooKeeper of the cluster that they follow.

`paths` names their nodes, `kept` reads what is in them.
"""
