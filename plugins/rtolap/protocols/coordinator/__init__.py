"""The coordinator's protocol: REST and JSON, bearer token; `operations` are use cases of several calls."""
