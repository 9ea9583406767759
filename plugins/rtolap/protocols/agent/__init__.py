"""An agent's protocol, which is REST on one host with a bearer token."""
