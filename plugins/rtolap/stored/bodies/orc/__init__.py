"""ORC bodies of loads, read in a process of its own."""
