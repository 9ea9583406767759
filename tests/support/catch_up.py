"""Bounds with which whoever is behind at all is read apart at once: tests need no backlog."""

from rtolap.kafka.catch_up import CatchUpBounds

EAGER = CatchUpBounds(
    behind_records=0, near_records=0, looks=1, look_every_s=0.0, partitions_max=1, turn_s=0.0
)
