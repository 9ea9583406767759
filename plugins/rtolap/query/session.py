"""The statement's interface to the engine: its own session, wherever the engine runs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from rtolap.base.closeable import Closeable
from rtolap.query.cancel import Cancellation
from rtolap.query.sql.dialect import engine_sql

BATCH_ROWS = 8192  # of a result: bounds what a slow client keeps in memory


class Result(Protocol):
    """Rows that come as they are read. It ends with its session."""

    schema: pa.Schema

    def next_batch(self) -> pa.RecordBatch | None:
        """None after the last."""

    def drain(self) -> int:
        """Return the number of rows left, without sending them."""


class Session(Closeable):
    """One statement's own: what it registers is seen by no other. One result at a time.

    Every call raises QueryError for what the engine refuses, or that it was interrupted; Unavailable where it
    needs more memory than it may have.
    """

    @abstractmethod
    def register(self, name: str, table: pa.Table) -> None: ...

    @abstractmethod
    def value(self, sql: str, parameters: Mapping[str, object]) -> object:
        """Return the value of the one row and column of `sql`."""

    @abstractmethod
    def run(self, sql: str, parameters: Mapping[str, object]) -> Result: ...

    @abstractmethod
    def interrupt(self) -> None:
        """From any thread: end what the session is doing now, if it does anything."""

    def fold(self, expression: exp.Expr, parameters: Mapping[str, object]) -> object:
        """The value of a constant expression. LookupError if it holds a parameter without a value."""
        if isinstance(expression, exp.Literal):
            return expression.to_py()
        if isinstance(expression, exp.Parameter):
            return parameters[str(expression.name)]
        needed = {str(node.name) for node in expression.find_all(exp.Parameter)}
        values = {name: parameters[name] for name in needed}
        return self.value(f"SELECT {engine_sql(expression)}", values)

    def read(self, sql: str, parameters: Mapping[str, object]) -> pa.Table:
        """The whole result, for what is known to be small."""
        result, batches = self.run(sql, parameters), []
        while (batch := result.next_batch()) is not None:
            batches.append(batch)
        return pa.Table.from_batches(batches, result.schema)


class Sessions(Closeable):
    """The factory of the sessions of statements."""

    @abstractmethod
    def session(self, ending: Cancellation) -> Session:
        """`ending`: of the statement that it is for."""
