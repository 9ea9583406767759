"""Common parts of REST: the base of messages, one request as a value, finding the leader, ids of requests."""
