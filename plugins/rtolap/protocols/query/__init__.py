"""The query service over HTTP: messages and client."""
