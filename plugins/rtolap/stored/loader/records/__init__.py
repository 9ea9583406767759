"""Records of a topic on their way to a load's body."""
