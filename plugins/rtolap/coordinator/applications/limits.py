"""Limits of what one application takes in."""

from __future__ import annotations

PARTITIONS_MAX = 10_000  # of a source: each takes 8 bytes per host
UNITS_MAX = 20_000
UNITS_BYTES_MAX = 700_000  # of their names: those that a next owner awaits stand in one node, of 1 MB
NAME_MAX = 200  # characters of a client's or a processor's name
INSTANT_MAX_MS = 253_402_300_799_999  # the end of the year 9999
NUMBER_MAX = 2**63 - 1  # of generations and key groups
