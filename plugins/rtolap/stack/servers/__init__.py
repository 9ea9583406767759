"""The real servers of a local stack, each with what starts it and what tells that it is ready."""
