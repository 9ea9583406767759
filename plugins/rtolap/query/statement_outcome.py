"""A running result yields batches as they are read, and gives back its memory and connections when they
end."""

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
VALUE_COPIES = 6  # of a value: as text, as an object, with its length, in its row, in the answer
NESTED_COPIES = 40  # of one in a struct, which is written with quotes and escapes, up to 4 bytes a character
CELL_BYTES = 130
NESTED_CELLS = 3  # that a value in a struct counts as: it has its name beside it


@dataclass
class StatementOutcome:
    """A result that is running. The caller iterates over `batches` once, or calls `close`.

    Attributes:
        warnings: warnings that are known before the first batch.
        made: what the statements that share the rows derive from them, such as the packets of a protocol;
            None where the rows are not shared.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    stats: list[ReadStats] = field(default_factory=list)
    tables: list[TableStats] = field(default_factory=list)
    warnings: tuple[QueryWarning, ...] = ()
    made: Once | None = None

    @property
    def positions(self) -> dict[str, dict[int, int]]:
        return {cube: at for stats in self.stats for cube, at in stats.all_positions().items()}

    def table(self) -> pa.Table:
        return pa.Table.from_batches(list(self.batches), self.schema)

    def close(self) -> None:
        """Give back what the query holds; harmless when it was read to its end."""
        closer = getattr(self.batches, "close", None)
        if closer is not None:
            closer()


def result_pieces(
    batch: pa.RecordBatch,
    account: Account | None,
    *,
    piece_bytes: int = PIECE_BYTES,
    copies: int = VALUE_COPIES,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in parts that are small as Python objects too: a boolean of one bit then takes 60 bytes.

    Args:
        piece_bytes: bytes of a part, unless one row is larger.
        copies: copies of the part's bytes while it is written, at most. A single larger row is written in
            parts and has VALUE_COPIES.

    Raises OverBudget for a part that the account has no room for.
    """
    cells = max(1, sum(map(_cells, batch.schema.types)))
    nested = [number for number, kind in enumerate(batch.schema.types) if pa.types.is_nested(kind)]
    rows = max(1, min(CELLS_MAX // cells, batch.num_rows * piece_bytes // max(1, batch.nbytes)))
    for at in range(0, batch.num_rows, rows):
        piece = batch if rows >= batch.num_rows else batch.slice(at, rows)
        if account is not None:
            nested_bytes = sum(piece.column(number).nbytes for number in nested)
            flat_copies = copies if piece.nbytes <= piece_bytes else VALUE_COPIES
            taken = flat_copies * (piece.nbytes - nested_bytes) + NESTED_COPIES * nested_bytes
            account.reserve(RESULT, batch.nbytes + taken + CELL_BYTES * piece.num_rows * cells)
        yield piece


def _cells(kind: pa.DataType) -> int:
    """Return how many values one value of that type is as objects."""
    if not pa.types.is_struct(kind):
        return 1
    return 1 + NESTED_CELLS * sum(_cells(kind.field(number).type) for number in range(kind.num_fields))


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
