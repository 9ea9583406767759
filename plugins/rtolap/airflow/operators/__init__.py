"""Operators that build, run long-running processes, ask for approvals and make short calls to the
coordinator."""
