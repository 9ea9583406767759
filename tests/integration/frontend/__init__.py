"""Tests of the endpoints of Stream Load and SQL, with storage nodes as processes."""
