"""Statements and their clients: random SQL, oracles, clients of the MySQL protocol."""
