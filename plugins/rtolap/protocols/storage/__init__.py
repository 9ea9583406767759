"""A storage node's protocol over Arrow Flight: messages and client."""
