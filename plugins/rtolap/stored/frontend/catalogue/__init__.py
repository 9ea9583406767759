"""Stored tables: made, changed and dropped by the master, read by everybody."""
