"""An agent's protocol: REST on one host, bearer token."""
