"""Common parts of the REST clients: one request as a value, finding the leader, ids of repeated requests."""
