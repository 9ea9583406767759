"""Statements and who asks them: random SQL, oracles, clients of the MySQL protocol."""
