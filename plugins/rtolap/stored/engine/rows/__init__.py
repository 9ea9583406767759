"""Arithmetic on sorted rows: keys, merging by the table model, partial rows."""
