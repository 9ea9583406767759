"""The progress of the log hosts, as the records of a partition state it, and the reports of it."""
