"""The declaration of a stored table: its columns, keys, partitions, and how its schema may change."""
