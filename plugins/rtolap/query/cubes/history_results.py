"""Results over READY versions, so that a repeated statement reads only the versions that are new.

A version never changes, so a statement's result over it stays right. A result is cached with its versions.
A later statement that needs all of them reads only the others, and merges them with the result.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from rtolap.query.cubes.byte_bounded import ByteBounded
from rtolap.query.plan import CubeRead

BYTES_MAX = 32 << 20
_RESULTS_MIN = 8  # that have room: a larger one is not cached
_LOCATION_BYTES = 150  # of one version's name


@dataclass(frozen=True)
class HistoryResult:
    """The result of a statement over READY versions.

    Attributes:
        locations: the versions that the result covers.
        table: the grouped rows.
        cuboids: cuboid name → segments read from it, by the statements that read the versions.
        rows_read: rows that these statements have read.
        rows_pruned: rows that these statements have left out.
    """

    locations: frozenset[str]
    table: pa.Table
    cuboids: dict[str, int]
    rows_read: int
    rows_pruned: int


class HistoryResults:
    """A cache of the last result of each statement. Thread-safe.

    Two statements are the same if they differ in nothing but the versions.
    """

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._results: ByteBounded[HistoryResult] = ByteBounded(bytes_max)

    def find(self, statement: str, locations: Collection[str]) -> HistoryResult | None:
        """Return a result over some of these versions and no others."""
        known = self._results.find(statement)
        return known if known is not None and known.locations.issubset(locations) else None

    def keep(self, statement: str, result: HistoryResult) -> None:
        size = result.table.nbytes + len(statement) + _LOCATION_BYTES * len(result.locations)
        if size * _RESULTS_MIN <= self._bytes_max:
            self._results.keep(statement, result, size)


def statement_of(read: CubeRead, schema: pa.Schema) -> str:
    """Return a key of everything that a result depends on, except the versions.

    Args:
        schema: the schema of the result, whose types may change with the cube's definition.
    """
    types = [str(field.type) for field in schema]
    wanted = (read.cube, read.dimensions, read.partials, types, read.filter)
    return msgspec.json.encode(wanted).decode()
