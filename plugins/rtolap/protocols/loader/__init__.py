"""A loader's protocol: REST of one process, bearer token."""
