"""The coordinator's protocol: REST and JSON, bearer token."""
