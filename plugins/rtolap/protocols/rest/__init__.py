"""What the REST clients share: one request as a value, finding the leader, ids of repeated requests."""
