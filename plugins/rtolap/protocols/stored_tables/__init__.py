"""The catalogue of stored tables over REST: messages, client, and partitions asked for over MySQL."""
