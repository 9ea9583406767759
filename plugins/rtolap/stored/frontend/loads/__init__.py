"""A load, from its headers to the rows in the tablets of all replicas."""
