"""The rows of one local table that a predicate keeps."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from rtolap.columnar.filter import mask
from rtolap.cubes.receiver.local.tables import LocalTable
from rtolap.model.predicate import Predicate


class Selected(NamedTuple):
    """A table in local form; how many rows were read for it, and how many ranges and indexes spared."""

    table: pa.Table
    rows_scanned: int
    rows_pruned: int


def select(local: LocalTable, predicate: Predicate | None) -> Selected:
    if local.fragment is not None:
        return Selected(*local.fragment.select(predicate))
    if predicate is None:
        return Selected(local.table, local.rows, 0)
    if local.statistics.excludes(predicate):
        return Selected(local.table.slice(0, 0), 0, local.rows)
    return Selected(local.table.filter(mask(local.table, predicate)), local.rows, 0)
