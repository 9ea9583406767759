"""A running result: batches that come as they are read, and what is given back when they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from rtolap.base.errors import RtolapError
from rtolap.protocols.query.messages import QueryWarning
from rtolap.query.cancel import Cancellation
from rtolap.query.coalescing import Once
from rtolap.query.memory_budget import RESULT, Account
from rtolap.query.plan import ReadStats, TableStats

CELLS_MAX = 65_536  # values that are objects at a time, of one result
PIECE_BYTES = 1 << 20  # of their rows, unless one row is larger
VALUE_COPIES = 5  # of a value: in its column, as an object, with its length, in its row, in the answer
CELL_BYTES = 130


@dataclass
class Outcome:
    """A running result: iterate `batches` once, or `close`. `positions`: cube → partition → next offset.

    `warnings` are known before the first batch. `made`: what those who share the rows make of them, as the
    packets of a protocol; None where nobody does.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    stats: list[ReadStats] = field(default_factory=list)
    tables: list[TableStats] = field(default_factory=list)
    warnings: tuple[QueryWarning, ...] = ()
    made: Once | None = None

    @property
    def positions(self) -> dict[str, dict[int, int]]:
        return {stats.cube: dict(sorted(stats.positions.items())) for stats in self.stats}

    def table(self) -> pa.Table:
        return pa.Table.from_batches(list(self.batches), self.schema)

    def close(self) -> None:
        """Give back what the query holds; harmless when it was read to its end."""
        closer = getattr(self.batches, "close", None)
        if closer is not None:
            closer()


def result_pieces(batch: pa.RecordBatch, account: Account | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows in parts that are small as objects too: a boolean of a bit is some sixty bytes then.

    Raises OverBudget for a part that the account has no room for.
    """
    columns = max(1, batch.num_columns)
    rows = max(1, min(CELLS_MAX // columns, batch.num_rows * PIECE_BYTES // max(1, batch.nbytes)))
    for at in range(0, batch.num_rows, rows):
        piece = batch if rows >= batch.num_rows else batch.slice(at, rows)
        if account is not None:
            taken = VALUE_COPIES * piece.nbytes + CELL_BYTES * piece.num_rows * columns
            account.reserve(RESULT, batch.nbytes + taken)
        yield piece


class ResultStream(Iterator[pa.RecordBatch]):
    """Batches that give the query's turn back at the end, at an error, or when closed; once."""

    def __init__(
        self, read: Callable[[], pa.RecordBatch | None], finish: Callable[[], None], ending: Cancellation
    ) -> None:
        self._read = read
        self._finish = finish
        self._ending = ending
        self._open = True

    def __next__(self) -> pa.RecordBatch:
        if not self._open:
            raise StopIteration
        try:
            self._ending.check()
            batch = self._read()
        except BaseException as error:
            stopped = self._ending.error()
            self.close()
            if stopped is not None and stopped is not error and isinstance(error, RtolapError):
                raise stopped from error
            raise
        if batch is None:
            self.close()
            raise StopIteration
        return batch

    def close(self) -> None:
        if self._open:
            self._open = False
            self._finish()

    def __del__(self) -> None:
        self.close()
