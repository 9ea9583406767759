"""Stored tables under faults: tablets, transactions, clusters in process and real."""
