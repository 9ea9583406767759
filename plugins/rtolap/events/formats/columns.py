"""The rows of some records while a reader makes them: columns in pieces, and what is wrong with a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from rtolap.events.classify import Leaf, Problem
from rtolap.events.formats.reader import Places, Problems
from rtolap.events.formats.values import fitted, misfit, read_type
from rtolap.events.plan import JsonPlan

Path = tuple[str, ...]


class RowBuilder:
    """Makes the rows of `count` records. Rows are numbers of records, ascending in each call.

    Attributes:
        leaves: the columns by their path.
    """

    def __init__(self, plan: JsonPlan, count: int) -> None:
        self.leaves: dict[Path, Leaf] = {leaf.path: leaf for leaf in reversed(plan.leaves)}
        self._count = count
        self._pieces: dict[Path, list[tuple[Places, pa.Array]]] = {path: [] for path in self.leaves}
        self._faults: dict[int, Problem] = {}

    def put(self, path: Path, rows: Places, values: pa.Array) -> None:
        """Take values of a column, one for each row. The first fault of a record is its problem."""
        leaf = self.leaves[path]
        column, bad = fitted(values, leaf)
        if bad.any():
            for at in np.flatnonzero(bad).tolist():
                self._faults.setdefault(int(rows[at]), misfit(leaf, values, at))
        self._pieces[path].append((rows, column))

    def refuse(self, rows: Places, problem: Problem) -> None:
        for row in rows.tolist():
            self._faults.setdefault(row, problem)

    def build(self, places: Places, problems: Problems) -> tuple[pa.StructArray, Places]:
        """Return the rows without refused records, and their places; `problems` gets the others."""
        columns = {path: self._column(path) for path in self.leaves}
        rows = _nested(columns, self._count)
        if not self._faults:
            return rows, places
        keep = np.ones(self._count, bool)
        for row, problem in self._faults.items():
            problems[int(places[row])] = problem
            keep[row] = False
        return rows.filter(pa.array(keep)), places[keep]

    def _column(self, path: Path) -> pa.Array:
        pieces = [piece for piece in self._pieces[path] if len(piece[0])]
        if not pieces:
            return pa.nulls(self._count, read_type(self.leaves[path]))
        if len(pieces) == 1 and len(pieces[0][0]) == self._count:
            return pieces[0][1]
        index = np.full(self._count, -1, np.int64)
        rows = np.concatenate([rows for rows, _ in pieces])
        index[rows] = np.arange(len(rows))
        values = pa.concat_arrays([column for _, column in pieces])
        return values.take(pa.array(index, mask=index < 0))


def _nested(columns: Mapping[Path, pa.Array], count: int) -> pa.StructArray:
    tree: dict[str, Any] = {}
    for path, column in columns.items():
        node = tree
        for part in path[:-1]:
            node = node.setdefault(part, {})
        node[path[-1]] = column
    return _struct(tree, count)


def _struct(tree: dict[str, Any], count: int) -> pa.StructArray:
    arrays = [_struct(node, count) if isinstance(node, dict) else node for node in tree.values()]
    return pa.StructArray.from_arrays(arrays, names=list(tree))
