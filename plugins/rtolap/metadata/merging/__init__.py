"""Merged sets in the records of segments: which versions a set answers for, and how it is committed."""
