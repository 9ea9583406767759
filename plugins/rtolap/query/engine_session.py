"""The statement's interface to the engine: its own session, wherever the engine runs."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from rtolap.base.closeable import Closeable
from rtolap.base.errors import Unavailable
from rtolap.query.cancel import Cancellation
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.coalescing import Once
from rtolap.query.plan import Planned
from rtolap.query.sql.statement import SqlStatement

BATCH_ROWS = 8192  # of a result: bounds what a slow client keeps in memory


class EngineResult(Protocol):
    """Rows that come as they are read. It ends with its session."""

    schema: pa.Schema

    def next_batch(self) -> pa.RecordBatch | None:
        """Return the next batch; None after the last one."""

    def drain(self) -> int:
        """Return the number of rows left, without sending them."""


class TableResult(EngineResult):
    """The rows of a table that is whole already. `made`: what several who share it make of it."""

    def __init__(self, table: pa.Table, made: Once | None = None) -> None:
        self.schema = table.schema
        self.made = made
        self._batches = iter(table.to_batches(max_chunksize=BATCH_ROWS))

    def next_batch(self) -> pa.RecordBatch | None:
        return next(self._batches, None)

    def drain(self) -> int:
        return sum(batch.num_rows for batch in self._batches)


class EngineSession(Closeable):
    """The session of a single statement. Others do not see what it registers. It has one result at a time.

    Every call raises QueryError for what the engine refuses, or that it was interrupted; Unavailable where it
    needs more memory than it may have.
    """

    @abstractmethod
    def register(self, name: str, table: pa.Table) -> None: ...

    @abstractmethod
    def value(self, sql: str, parameters: Mapping[str, object]) -> object:
        """Return the value of the one row and column of `sql`."""

    @abstractmethod
    def run(self, sql: str, parameters: Mapping[str, object]) -> EngineResult: ...

    @abstractmethod
    def read_statement(self, text: str, database: str | None) -> SqlStatement:
        """Return what the text of a statement says of itself, where it is one query."""

    @abstractmethod
    def plan(
        self, statement: SqlStatement, values: Mapping[str, object], catalogue: QueryCatalogue
    ) -> Planned:
        """`values`: of the parameters, as far as there are any yet."""

    @abstractmethod
    def show_filter(self, condition: str, first: str) -> str:
        """Return SQL for the rows of `shown` that meet the condition of a SHOW; `first`: its column for
        LIKE."""

    @abstractmethod
    def interrupt(self) -> None:
        """End what the session is doing now, if it does anything. May be called from any thread."""

    def read(self, sql: str, parameters: Mapping[str, object]) -> pa.Table:
        """Return the whole result, for what is known to be small."""
        result, batches = self.run(sql, parameters), []
        while (batch := result.next_batch()) is not None:
            batches.append(batch)
        return pa.Table.from_batches(batches, result.schema)


class EngineSessions(Closeable):
    """The factory of the sessions of statements."""

    @abstractmethod
    def session(self, ending: Cancellation) -> EngineSession:
        """`ending`: of the statement that it is for."""


class LazyEngineSession(EngineSession):
    """A session that takes one of `engine` when something is first done: some statements need none."""

    def __init__(self, engine: EngineSessions, ending: Cancellation) -> None:
        self._engine = engine
        self._ending = ending
        self._lock = threading.Lock()
        self._session: EngineSession | None = None
        self._closed = False

    @property
    def is_open(self) -> bool:
        return self._session is not None

    def register(self, name: str, table: pa.Table) -> None:
        self._opened().register(name, table)

    def value(self, sql: str, parameters: Mapping[str, object]) -> object:
        return self._opened().value(sql, parameters)

    def run(self, sql: str, parameters: Mapping[str, object]) -> EngineResult:
        return self._opened().run(sql, parameters)

    def read_statement(self, text: str, database: str | None) -> SqlStatement:
        return self._opened().read_statement(text, database)

    def plan(
        self, statement: SqlStatement, values: Mapping[str, object], catalogue: QueryCatalogue
    ) -> Planned:
        return self._opened().plan(statement, values, catalogue)

    def show_filter(self, condition: str, first: str) -> str:
        return self._opened().show_filter(condition, first)

    def interrupt(self) -> None:
        session = self._session
        if session is not None:
            session.interrupt()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            session = self._session
        if session is not None:
            session.close()

    def _opened(self) -> EngineSession:
        if self._session is None:
            self._ending.check()
            session = self._engine.session(self._ending)
            with self._lock:
                if not self._closed:
                    self._session = session
            if self._session is None:
                session.close()
                raise Unavailable("the query was closed")
        return self._session
