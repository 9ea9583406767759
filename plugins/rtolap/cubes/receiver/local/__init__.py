"""The local state of one cube: immutable tables in memory and in fragments, and what changes them."""
