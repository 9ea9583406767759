"""Other engines whose answers are those that ours are held to."""
