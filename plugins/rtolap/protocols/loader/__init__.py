"""A loader's protocol, which is REST of one process with a bearer token."""
