"""The local stack and the demonstration on it."""
