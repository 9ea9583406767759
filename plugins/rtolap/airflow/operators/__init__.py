"""Operators: builds, long-running processes, approvals and short calls to the coordinator."""
