"""The cuboids of a segment in history, the largest first."""

from __future__ import annotations

import msgspec

from rtolap.base.decoding import copied
from rtolap.protocols.coordinator.messages import SegmentCuboids


class CuboidRow(msgspec.Struct, frozen=True, kw_only=True):
    """A cuboid, with its files and their bytes."""

    name: str
    dimensions: tuple[str, ...]
    rows: int
    files: int
    bytes: int


class CuboidsPage(msgspec.Struct, frozen=True):
    now_ms: int
    segment: str
    version: int
    cuboids: tuple[CuboidRow, ...]


def cuboid_rows(found: SegmentCuboids) -> tuple[CuboidRow, ...]:
    return tuple(copied(CuboidRow, each) for each in found.cuboids)
