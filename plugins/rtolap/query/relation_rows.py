"""Rows of a relation on their way into a session of the engine, batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from rtolap.query.memory_budget import READ, Account


class RelationRows(Protocol):
    """The rows of one relation, which the session knows after `finish`. For one thread."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch of the relation's schema; it is not needed afterwards."""
        ...

    def finish(self) -> None:
        """Register the relation."""
        ...

    def discard(self) -> None:
        """Forget what was written. Harmless after `finish`."""
        ...


class RowsInMemory(RelationRows):
    """Rows that the engine reads where they lie, in this process."""

    def __init__(self, schema: pa.Schema, register: Callable[[pa.Table], None]) -> None:
        self._schema, self._register = schema, register
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)

    def finish(self) -> None:
        self._register(pa.Table.from_batches(self._batches, self._schema))

    def discard(self) -> None:
        self._batches.clear()


class CountedRows(RelationRows):
    """Rows of a relation whose bytes count in the memory of their user."""

    def __init__(self, rows: RelationRows, account: Account) -> None:
        self._rows, self._account = rows, account
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._account.reserve_more(READ, batch.nbytes)
        self._bytes += batch.nbytes
        self._rows.write(batch)

    def finish(self) -> None:
        self._rows.finish()

    def discard(self) -> None:
        self._rows.discard()
        self._account.reserve_more(READ, -self._bytes)
        self._bytes = 0
