"""Positions in a topic. An offset always means next-to-read."""

from __future__ import annotations

import msgspec

Offsets = dict[int, int]  # partition → next offset


class PartRange(msgspec.Struct, frozen=True):
    """`[start, end)` of one partition: the part holds exactly this segment's events of that range."""

    partition: int
    start: int
    end: int
