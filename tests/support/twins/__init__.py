"""Twins in memory of servers and of time. Each passes the contract suite of what it stands for."""
