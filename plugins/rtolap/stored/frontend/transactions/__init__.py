"""Transactions of loads: labels, two-phase commit over the replicas, publishing in order."""
