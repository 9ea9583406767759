"""History read on Spark: drawn reads and histories, the service, statements beside a test."""
