"""What becomes of a row's cells, by HBase's rules: an obvious, slow model. And random edits of all kinds.

Each cell has a timestamp, a type and the order of its edit. A delete hides the puts that it covers, also
those that are written after it: HBase compares timestamps, not the order of edits, until a compaction has
removed the delete. Of the puts that are left of a column the newest is read, of equal timestamps the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple

import numpy as np
from rtolap.sep.events.edit_batch import CellType
from rtolap.sep.rows.reader import ReadRows

from tests.support.hbase import mutations
from tests.support.hbase.client_pb2 import MutationProto
from tests.support.sep.batches import Cell, Event, batch_of

Column = tuple[bytes, bytes]
Written = Callable[[bytes], Sequence[tuple[int, Sequence[Cell]]]]
"""A row → its edits: order, cells."""


class Version(NamedTuple):
    timestamp_ms: int
    order: int
    value: bytes


def visible(edits: Sequence[tuple[int, Sequence[Cell]]]) -> dict[Column, bytes]:
    """Return the value of each column that a read of the row finds."""
    cells = [(order, cell) for order, of_edit in edits for cell in of_edit]
    deletes = [cell for _, cell in cells if cell.type != CellType.PUT]
    newest: dict[Column, Version] = {}
    for order, cell in cells:
        if cell.type != CellType.PUT or any(_covers(delete, cell) for delete in deletes):
            continue
        column, version = (cell.family, cell.qualifier), Version(cell.timestamp_ms, order, cell.value)
        newest[column] = max(newest.get(column, version), version)
    return {column: version.value for column, version in newest.items()}


def _covers(delete: Cell, put: Cell) -> bool:
    if delete.family != put.family:
        return False
    match delete.type:
        case CellType.DELETE_FAMILY:
            return put.timestamp_ms <= delete.timestamp_ms
        case CellType.DELETE_FAMILY_VERSION:
            return put.timestamp_ms == delete.timestamp_ms
        case CellType.DELETE_COLUMN:
            return put.qualifier == delete.qualifier and put.timestamp_ms <= delete.timestamp_ms
        case _:
            return put.qualifier == delete.qualifier and put.timestamp_ms == delete.timestamp_ms


FAMILIES = (b"cf", b"df", b"zz")
COLUMNS: Mapping[Column, Callable[[int], bytes]] = {
    (b"cf", b"a"): lambda at: at.to_bytes(8, "big"),
    (b"df", b"b"): lambda at: f"text {at}".encode(),
    (b"zz", b"undeclared"): lambda at: b"%d" % at,
}


def drawn_cells(random: Random, now_ms: int) -> tuple[Cell, ...]:
    """Return the cells of one edit: puts of some columns or deletes of any kind, at any timestamp."""
    at = random.choice((now_ms, now_ms, now_ms, now_ms - random.randint(1, 5), now_ms + random.randint(1, 5)))
    family, qualifier = random.choice(list(COLUMNS))
    match random.randrange(10):
        case 0:  # a row
            return tuple(Cell(b"", b"", each, at, CellType.DELETE_FAMILY) for each in FAMILIES)
        case 1:
            return (Cell(b"", b"", family, at, CellType.DELETE_FAMILY),)
        case 2:
            return (Cell(b"", b"", family, at, CellType.DELETE_FAMILY_VERSION),)
        case 3:
            return (Cell(qualifier, b"", family, at, CellType.DELETE_COLUMN),)
        case 4:
            return (Cell(qualifier, b"", family, at, CellType.DELETE),)
        case _:
            chosen = random.sample(list(COLUMNS), random.randint(1, len(COLUMNS)))
            return tuple(Cell(q, COLUMNS[f, q](now_ms), f, at) for f, q in chosen)


def drawn_mutation(random: Random, row: bytes, now_ms: int, number: int) -> MutationProto:
    """Return an edit as a client sends it, by `drawn_cells`; some leave the timestamp to the server.

    `number` is what is put. Timestamps are few, so that puts and deletes of one millisecond are many.
    """
    cells = drawn_cells(random, now_ms)
    at = None if random.random() < 0.3 else cells[0].timestamp_ms
    column = f"{cells[0].family.decode()}:{cells[0].qualifier.decode()}"
    if len(cells) == len(FAMILIES) and cells[0].type == CellType.DELETE_FAMILY:
        return mutations.delete_row(row, at)
    match cells[0].type:
        case CellType.DELETE_FAMILY:
            return mutations.delete_family(row, cells[0].family.decode(), at)
        case CellType.DELETE_FAMILY_VERSION:
            return mutations.delete_family_version(row, cells[0].family.decode(), cells[0].timestamp_ms)
        case CellType.DELETE_COLUMN:
            return mutations.delete_column(row, column, at)
        case CellType.DELETE:
            return mutations.delete_version(row, column, at)
        case _:
            values = {
                f"{each.family.decode()}:{each.qualifier.decode()}": COLUMNS[each.family, each.qualifier](
                    number
                )
                for each in cells
            }
            return mutations.put(row, values, timestamp_ms=at)


class ModelRows:
    """A RowSource that reads what is written now. `meet` is called first, and may raise."""

    def __init__(
        self,
        written: Written,
        columns: Sequence[Column],
        meet: Callable[[], None] = lambda: None,
    ) -> None:
        self._written, self._columns, self._meet = written, columns, meet

    def read(self, table: str, rows: Sequence[bytes], at_least: Mapping[str, int]) -> Iterator[ReadRows]:
        assert len(set(rows)) == len(rows), "a row is read once"
        assert at_least, "the edits that a read must have"
        for first in range(0, len(rows), 2):
            self._meet()
            some = rows[first : first + 2]
            states = [visible(self._written(row)) for row in some]
            cells = [
                [Cell(q, state[f, q], f) for f, q in self._columns if (f, q) in state] for state in states
            ]
            counts = np.array([len(of_row) for of_row in cells], np.int64)
            batch = batch_of(
                Event("r", 0, row, cells=tuple(of_row)) for row, of_row in zip(some, cells, strict=True)
            )
            exists = np.array([bool(state) for state in states], bool)
            yield ReadRows(np.arange(first, first + len(some)), batch.cells, counts, exists)

    def close(self) -> None: ...
