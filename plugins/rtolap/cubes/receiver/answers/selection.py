"""The rows of one local table that a query keeps: none, those of a small cuboid, or its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from rtolap.columnar.filter import mask
from rtolap.cubes.receiver.local.tables import LocalTable
from rtolap.model.predicate import columns_of
from rtolap.protocols.receiver.messages import PartialQuery

NO_CUBOIDS: Mapping[str, int] = {}
CUBOID_ROWS_FEW = 4096  # are read as quickly as an index is asked


class Selected(NamedTuple):
    """A table in local form; how many rows were read for it, and how many ranges and indexes spared; by name,
    of how many tables a cuboid was read."""

    table: pa.Table
    rows_scanned: int
    rows_pruned: int
    cuboids: Mapping[str, int] = NO_CUBOIDS


def select(local: LocalTable, query: PartialQuery) -> Selected:
    """The rows that the query's filter keeps, with the columns that it wants."""
    columns, predicate = [*query.dimensions, *query.partials], query.filter
    if predicate is not None and local.excludes(predicate):
        return Selected(local.table.select(columns).slice(0, 0), 0, local.rows)
    needed = {*query.dimensions, *columns_of(predicate)}
    cuboid = local.cuboids.covering(needed)
    if cuboid is not None and not _is_narrower(local, query, cuboid.rows):
        kept = cuboid.table.select(columns)
        if predicate is not None:
            kept = kept.filter(mask(cuboid.table, predicate))
        return Selected(kept, cuboid.rows, 0, {cuboid.cuboid.name: 1})
    if local.fragment is not None:
        return Selected(*local.fragment.select(predicate, columns))
    wanted = local.table.select(columns)
    if predicate is not None:
        wanted = wanted.filter(mask(local.table, predicate))
    return Selected(wanted, local.rows, 0)


def _is_narrower(local: LocalTable, query: PartialQuery, rows: int) -> bool:
    """True when the index of values leaves fewer rows than so many."""
    if query.filter is None or local.fragment is None or rows <= CUBOID_ROWS_FEW:
        return False
    return local.fragment.rows_max(query.filter) < rows
