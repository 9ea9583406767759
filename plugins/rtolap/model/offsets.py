"""Positions in a topic. An offset always means next-to-read."""

from __future__ import annotations

import msgspec

Offsets = dict[int, int]  # partition → next offset


def larger(offsets: Offsets, others: Offsets) -> Offsets:
    """Return the larger offset of each partition."""
    return {p: max(offsets.get(p, 0), others.get(p, 0)) for p in sorted({*offsets, *others})}


class PartRange(msgspec.Struct, frozen=True):
    """`[start, end)` of one partition: the part holds exactly this segment's events of that range."""

    partition: int
    start: int
    end: int
