"""Small cuboids of a cube's declared groups beside a fragment, for statements that come for the first time.

A repeated statement finds its result (see `answers/result_cache`). A new statement would read every row,
though most statements use few dimensions. A larger fragment therefore gets those declared cuboids that hold
at most a tenth of its rows. They are grouped once, beside the core, and read instead where they cover a
statement. A new fragment has none for a moment, and is read as it is.

Cuboids hold all partials and are made by the same merge as answers, so decimals, nulls and sketches stay
exact. Their size is bounded beforehand: a cuboid has no more rows than its dimensions have combinations, and
at least as many as each cuboid whose dimensions it contains.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import pyarrow as pa

from rtolap.base.errors import Refused
from rtolap.columnar.chunks import single_chunk
from rtolap.cubes.format.aggregate import merge_tables
from rtolap.model.cube import Cuboid, Schema, cuboids, smallest_covering
from rtolap.scan.groups import group
from rtolap.scan.keys import Coded, code

TABLE_ROWS_MIN = 1 << 14  # a smaller table is read about as quickly, and is about to be merged
ROWS_PER_CUBOID_ROW_MIN = 10
FIRST_ROWS = 2  # times as many rows as a cuboid may have mostly show that it has more
BYTES_PER_CUBOIDS_MIN = 4  # all cuboids of a table together take no more than this part of it


@dataclass(frozen=True)
class SmallCuboid:
    cuboid: Cuboid
    table: pa.Table

    @property
    def dimensions(self) -> tuple[str, ...]:
        return self.cuboid.dimensions

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)


class TableCuboids:
    """The cuboids beside one immutable table. They are set once, by the thread that makes
    them, and read by any.

    Cuboids of a merged table are made of its members' cuboids, where all members have one.
    """

    __slots__ = ("_cuboids", "_members", "nbytes")

    def __init__(self, members: Iterable[TableCuboids] = ()) -> None:
        self._cuboids: tuple[SmallCuboid, ...] | None = None
        self._members = [member._cuboids for member in members]
        self.nbytes = 0

    @property
    def made(self) -> bool:
        """True once the table's cuboids are made, even if there are none."""
        return self._cuboids is not None

    def keep(self, made: Iterable[SmallCuboid]) -> None:
        cuboids = tuple(made)
        self.nbytes = sum(int(one.table.nbytes) for one in cuboids)
        self._cuboids, self._members = cuboids, []

    def of_members(self, cuboid: Cuboid) -> list[pa.Table]:
        """Return this cuboid of each member table; an empty list where a member has none."""
        found = [one.table for cuboids in self._members for one in cuboids or () if one.cuboid == cuboid]
        return found if len(found) == len(self._members) else []

    def covering(self, needed: Collection[str]) -> SmallCuboid | None:
        """Return the smallest that holds these dimensions; None where the table itself has to be read."""
        return smallest_covering(self._cuboids, needed) if self._cuboids else None


def small_cuboids(schema: Schema, table: pa.Table, bytes_max: int, beside: TableCuboids) -> list[SmallCuboid]:
    """Build the declared cuboids that are small beside the table, within `bytes_max` in all.

    Each is merged from the same cuboid of the tables that went into this one. Where these lack it, it is
    built from the smallest cuboid that contains it.
    """
    bytes_left = min(bytes_max, int(table.nbytes) // BYTES_PER_CUBOIDS_MIN)
    made: list[SmallCuboid] = []
    for cuboid in _small(schema, table):
        sources = beside.of_members(cuboid)
        if not sources:
            parent = smallest_covering(made, cuboid.dimensions)
            sources = [table if parent is None else parent.table]
        try:
            grouped = merge_tables(schema, sources, cuboid.dimensions)
        except Refused:  # a sum over so many rows does not fit its type, which is for a statement to say
            continue
        if grouped.nbytes <= bytes_left:
            made.append(SmallCuboid(cuboid, grouped))
            bytes_left -= grouped.nbytes
    return made


def _small(schema: Schema, table: pa.Table) -> list[Cuboid]:
    """Return the small cuboids, larger before smaller: as many of the smallest as together stay within the
    bound of rows."""
    rows_max = table.num_rows // ROWS_PER_CUBOID_ROW_MIN
    declared = cuboids(schema.cube)[1:]
    names = {name for cuboid in declared for name in cuboid.dimensions}
    keys = {name: _coded(single_chunk(table.column(name))) for name in names}
    rows: dict[Cuboid, int] = {}
    large: list[frozenset[str]] = []
    for cuboid in reversed(declared):
        dimensions = frozenset(cuboid.dimensions)
        if any(other <= dimensions for other in large):
            continue
        count = _count_within(rows_max, [keys[name] for name in cuboid.dimensions], table.num_rows)
        if count > rows_max:
            large.append(dimensions)
        else:
            rows[cuboid] = count
    return list(_within(rows, table.num_rows // BYTES_PER_CUBOIDS_MIN, declared))


def _count_within(rows_max: int, keys: Sequence[Coded], rows: int) -> int:
    """Count the groups that there are, or may be where that is few enough; more than `rows_max` of the first
    rows are too many already."""
    possible = prod(key.radix for key in keys)
    if possible <= rows_max:
        return possible
    first = min(rows, FIRST_ROWS * rows_max)
    some = group([key._replace(codes=key.codes[:first]) for key in keys], first).size
    return some if some > rows_max or first == rows else group(keys, rows).size


def _coded(column: pa.Array) -> Coded:
    """Return the codes of a column, with one for nulls only if the column has nulls."""
    key = code(column)
    return key if column.null_count or not len(column) else key._replace(radix=key.radix - 1)


def _within(rows: dict[Cuboid, int], rows_max: int, declared: Sequence[Cuboid]) -> Iterator[Cuboid]:
    chosen: set[Cuboid] = set()
    for cuboid, count in sorted(rows.items(), key=lambda item: (item[1], item[0].name)):
        rows_max -= count
        if rows_max < 0:
            break
        chosen.add(cuboid)
    return (cuboid for cuboid in declared if cuboid in chosen)
