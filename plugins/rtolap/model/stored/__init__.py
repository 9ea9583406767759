"""What is declared of a stored table: its columns, keys, partitions, and how its schema may change."""
