"""The rows of one local table that a query keeps."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from rtolap.columnar.filter import mask
from rtolap.cubes.receiver.local.tables import LocalTable
from rtolap.protocols.receiver.messages import PartialQuery


class Selected(NamedTuple):
    """A table in local form; how many rows were read for it, and how many ranges and indexes spared."""

    table: pa.Table
    rows_scanned: int
    rows_pruned: int


def select(local: LocalTable, query: PartialQuery) -> Selected:
    """The rows that the query's filter keeps, with the columns that it wants."""
    columns, predicate = [*query.dimensions, *query.partials], query.filter
    if local.fragment is not None:
        return Selected(*local.fragment.select(predicate, columns))
    wanted = local.table.select(columns)
    if predicate is None:
        return Selected(wanted, local.rows, 0)
    if local.statistics.excludes(predicate):
        return Selected(wanted.slice(0, 0), 0, local.rows)
    return Selected(wanted.filter(mask(local.table, predicate)), local.rows, 0)
