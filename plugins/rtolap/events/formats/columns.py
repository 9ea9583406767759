"""The rows of some records while a reader makes them: columns in pieces, and what is wrong with a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from rtolap.base.undecodable import UNDECODABLE
from rtolap.events.classify import Leaf, Problem
from rtolap.events.formats.reader import Places, Problems
from rtolap.events.formats.values import fitted, misfit, read_type
from rtolap.events.plan import JsonPlan

Path = tuple[str, ...]


@dataclass
class Wanted:
    """What is wanted of a value: the value itself for a column, or what is inside of it.

    Attributes:
        path: of the column that the value is read for.
        constants: values of columns that the value itself does not hold, where it is there.
    """

    path: Path | None = None
    fields: dict[str, Wanted] = field(default_factory=dict)
    constants: list[tuple[Path, pa.Scalar]] = field(default_factory=list)

    @classmethod
    def of(cls, plan: JsonPlan) -> Wanted:
        root = cls()
        for leaf in plan.leaves:
            node = root
            for part in leaf.path:
                node = node.fields.setdefault(part, cls())
            node.path = leaf.path
        return root

    def paths(self) -> list[Path]:
        """Return the paths of the columns that are read out of the value."""
        found: list[Path] = []
        for child in self.fields.values():
            found += ([] if child.path is None else [child.path]) + child.paths()
        return found


class RowBuilder:
    """Makes the rows of `count` records. Rows are numbers of records, ascending in each call.

    Attributes:
        leaves: the columns by their path; of several that read one path the one that keeps most of a value.
    """

    def __init__(self, plan: JsonPlan, count: int) -> None:
        self.leaves: dict[Path, Leaf] = {leaf.path: leaf for leaf in sorted(plan.leaves, key=_narrowness)}
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

    def put_texts(self, path: Path, rows: Places, values: pa.Array) -> None:
        """Do as `put` with binary values that are texts in UTF-8. Others are refused."""
        try:
            texts = values.cast(pa.string())
        except pa.ArrowInvalid:
            broken = np.array([not _is_utf8(value) for value in values.to_pylist()], bool)
            detail = f"column {self.leaves[path].name} holds broken bytes"
            self.refuse(rows[broken], Problem("invalid_utf8", detail))
            rows, texts = rows[~broken], values.filter(pa.array(~broken)).cast(pa.string())
        self.put(path, rows, texts)

    def refuse(self, rows: Places, problem: Problem) -> None:
        for row in rows.tolist():
            self._faults.setdefault(row, problem)

    def build(self, places: Places, problems: Problems) -> tuple[pa.StructArray, Places]:
        """Return the rows without refused records, and their places; `problems` gets the others."""
        columns = {path: self._column(path) for path in self.leaves}
        rows = nested(columns, self._count)
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


def _narrowness(leaf: Leaf) -> int:
    """Return how much of a value a column keeps: all of its text, the time, the day. The last one counts."""
    kind = None if leaf.moment is None else leaf.moment.kind
    return {"date": 0, "timestamp": 1, None: 2}[kind]


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UNDECODABLE:
        return False
    return True


def nested(columns: Mapping[Path, pa.Array], count: int) -> pa.StructArray:
    """Return rows with these columns at their paths."""
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
