"""How far the log hosts are, as the records of a partition say it, and what is reported of it."""
