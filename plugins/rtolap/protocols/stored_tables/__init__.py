"""The catalogue of stored tables over REST: messages, client, and partitions requested over MySQL."""
