"""The catalogue of stored tables: the master makes, changes and drops them, and everybody reads them."""
