"""The completeness of windows when they close, and how long they wait, by each rule under faults."""
