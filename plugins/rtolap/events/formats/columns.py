"""The rows of some records while a reader makes them: columns in pieces, and what is wrong with a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rtolap.base.undecodable import UNDECODABLE
from rtolap.events.classify import Leaf, Problem, Reason
from rtolap.events.formats.reader import Flags, Places, Problems, chunks
from rtolap.events.formats.values import fitted, misfit, read_type
from rtolap.events.plan import JsonPlan
from rtolap.model.value_paths import index_of, path_text

Path = tuple[str, ...]
Rows = tuple[pa.StructArray, Places]
ReadRecords = Callable[[list[bytes], Places, Problems], Rows]
_CHUNK_RECORDS = 8192
_CHUNK_BYTES = 16 << 20


@dataclass
class Wanted:
    """The part of a value that columns want: the value itself, or what is inside of it.

    Attributes:
        path: of the column that the value is read for.
        fields: what is wanted of the fields of a record, or of the values of a map, by name or key.
        items: what is wanted of the items of an array. None: nothing.
        checks: columns whose type the value must have although none of them reads it.
        constants: values of columns that the value itself does not hold, where it is there.
        depth: steps of the columns' paths that lead to the value.
    """

    path: Path | None = None
    fields: dict[str, Wanted] = field(default_factory=dict)
    items: WantedItems | None = None
    checks: tuple[Leaf, ...] = ()
    constants: list[tuple[Path, pa.Scalar]] = field(default_factory=list)
    depth: int = 0

    @classmethod
    def of(cls, plan: JsonPlan) -> Wanted:
        return cls._below([(leaf, True) for leaf in sorted(plan.leaves, key=_narrowness)], 0)

    @classmethod
    def _below(cls, leaves: Sequence[tuple[Leaf, bool]], depth: int) -> Wanted:
        """Return what columns want at this depth of their paths. A column that is paired with False reads
        another item of an array that is around it."""
        node = cls(depth=depth)
        named: dict[str, list[tuple[Leaf, bool]]] = {}
        inside: list[tuple[Leaf, bool, int]] = []
        checks: dict[Any, Leaf] = {}
        for leaf, is_read in leaves:
            if len(leaf.path) == depth:
                if is_read:
                    node.path = leaf.path
                else:
                    checks[leaf.type, leaf.rounded, leaf.moment is None] = leaf
            elif (index := index_of(leaf.path[depth])) is not None:
                inside.append((leaf, is_read, index))
            else:
                named.setdefault(leaf.path[depth], []).append((leaf, is_read))
        node.checks = tuple(checks.values())
        node.fields = {name: cls._below(those, depth + 1) for name, those in named.items()}
        if inside:
            by_index = {}
            for at in sorted({index for _, is_read, index in inside if is_read}):
                reading = [(leaf, is_read and at == index) for leaf, is_read, index in inside]
                by_index[at] = cls._below(reading, depth + 1)
            others = cls._below([(leaf, False) for leaf, _, _ in inside], depth + 1)
            node.items = WantedItems(by_index, others)
        return node

    @property
    def is_value(self) -> bool:
        """Return whether the value itself is looked at, and not only what is inside of it."""
        return self.path is not None or bool(self.checks)

    def paths(self) -> list[Path]:
        """Return the paths of the columns that are read out of the value."""
        found: list[Path] = []
        for child in self._children():
            found += child.all_paths()
        return found

    def all_paths(self) -> list[Path]:
        """Return the path of the column that the value is read for, if any, and those inside of it."""
        return ([] if self.path is None else [self.path]) + self.paths()

    def checked(self) -> list[Leaf]:
        """Return the columns whose types are checked inside of the value."""
        found: list[Leaf] = []
        for child in self._children():
            found += [*child.checks, *child.checked()]
        return found

    def _children(self) -> list[Wanted]:
        items = () if self.items is None else (*self.items.by_index.values(), self.items.others)
        return [*self.fields.values(), *items]


class WantedItems(NamedTuple):
    """The demand of columns on the items of an array.

    Attributes:
        by_index: of the items that columns read.
        others: of all others: they must have the same types, as in JSON.
    """

    by_index: Mapping[int, Wanted]
    others: Wanted

    def at(self, index: int | None) -> Wanted:
        """Return what is wanted of an item; None: of those that no column reads."""
        return self.others if index is None else self.by_index[index]

    def split(self, positions: Places) -> list[tuple[int | None, Flags]]:
        """Return which of these positions in arrays are those of items that columns read, by their index;
        None for all others."""
        found: list[tuple[int | None, Flags]] = []
        left = np.ones(len(positions), bool)
        for index in self.by_index:
            which = positions == index
            if which.any():
                found.append((index, which))
                left &= ~which
        return [*found, (None, left)] if left.any() else found


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

    def put_nothing(self, path: Path, rows: Places) -> None:
        """Forget the values of a column that these rows have so far."""
        self._pieces[path].append((rows, pa.nulls(len(rows), read_type(self.leaves[path]))))

    def check(self, leaf: Leaf, rows: Places, values: pa.Array) -> None:
        """Refuse rows with values that are not of the column's type. A row may have any number of them.

        A text or a point in time that stands for no moment is left alone, as in JSON: nobody reads it.
        """
        if leaf.moment is not None:
            if pa.types.is_string(values.type) or pa.types.is_temporal(values.type):
                return
            leaf = leaf._replace(moment=None)
        _, bad = fitted(values, leaf)
        for at in np.flatnonzero(bad).tolist():
            self._faults.setdefault(int(rows[at]), misfit(leaf, values, at))

    def texts(self, leaf: Leaf, rows: Places, values: pa.Array) -> tuple[Places, pa.Array]:
        """Return binary values that are texts in UTF-8, and their rows. Rows with others are refused."""
        try:
            return rows, values.cast(pa.string())
        except pa.ArrowInvalid:
            broken = np.array([not is_utf8(value) for value in values.to_pylist()], bool)
            self.refuse(rows[broken], Problem("invalid_utf8", f"column {leaf.name} holds broken bytes"))
            return rows[~broken], values.filter(pa.array(~broken)).cast(pa.string())

    def refuse_value(self, wanted: Wanted, rows: Places, found: object) -> None:
        """Refuse rows with a value that holds others, where columns want a plain one."""
        read = () if wanted.path is None else (self.leaves[wanted.path],)
        for leaf in (*read, *wanted.checks):
            expected = leaf.rounded or leaf.moment or leaf.type
            problem = Problem("nested_value", f"column {leaf.name}: expected {expected}, found {found}")
            self.refuse(rows, problem)

    def refuse_inside(
        self, wanted: Wanted, rows: Places, found: object, *, fields: bool = False, items: bool = False
    ) -> None:
        """Refuse rows with a value inside of which columns want what it cannot have. `fields`, `items`: it
        has those."""
        wrong = [] if fields else [(child, "an object") for child in wanted.fields.values()]
        if not items and wanted.items is not None:
            wrong += [(each, "an array") for each in (*wanted.items.by_index.values(), wanted.items.others)]
        for child, expected in wrong:
            for leaf in (*(self.leaves[path] for path in child.all_paths()), *child.checks, *child.checked()):
                at = path_text(leaf.path[: wanted.depth])
                detail = f"column {leaf.name}: expected {expected} at {at}, found {found}"
                reason: Reason = "invalid_time" if leaf.is_time else "wrong_type"
                self.refuse(rows, Problem(reason, detail))

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
    return {"date": 0, "timestamp": 1, "binary": 1, None: 2}[kind]


def is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UNDECODABLE:
        return False
    return True


def nested(columns: Mapping[Path, pa.Array], count: int) -> pa.StructArray:
    """Return rows with these columns at their paths. An item of an array is a field that is named by its
    step."""
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


def in_chunks(
    plan: JsonPlan, records: list[bytes], places: Places, problems: Problems, read: ReadRecords
) -> Rows:
    """Return the rows of the records, which `read` reads in chunks."""
    parts = [
        read(records[first:last], places[first:last], problems)
        for first, last in chunks(records, _CHUNK_RECORDS, _CHUNK_BYTES)
    ]
    return together(plan, parts)


def together(plan: JsonPlan, parts: Sequence[Rows]) -> Rows:
    """Return the rows of all parts, one behind the other."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return RowBuilder(plan, 0).build(np.zeros(0, np.int64), {})
    return pa.concat_arrays([rows for rows, _ in parts]), np.concatenate([at for _, at in parts])
