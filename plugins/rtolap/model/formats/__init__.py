"""How the records of a topic are written: the formats with their options, and the schemas that they need."""
