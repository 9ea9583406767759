"""A receiver's protocol over Arrow Flight: messages and client."""
