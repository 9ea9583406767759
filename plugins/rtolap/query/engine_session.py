"""The interface between a statement and the engine: a session of its own, wherever the engine runs."""

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
from rtolap.query.relation_rows import RelationRows
from rtolap.query.spills.tables import SpilledTable
from rtolap.query.sql.statement import SqlStatement

BATCH_ROWS = 8192  # of a result: bounds what a slow client keeps in memory


class EngineResult(Protocol):
    """A result whose rows come as they are read. It ends with its session."""

    schema: pa.Schema

    def next_batch(self) -> pa.RecordBatch | None:
        """Return the next batch; None after the last one."""

    def drain(self) -> int:
        """Return the number of rows left, without sending them."""


class TableResult(EngineResult):
    """The rows of a table that is complete already.

    Attributes:
        made: what the statements that share the table derive from it; None where it is not shared.
    """

    def __init__(self, table: pa.Table, made: Once | None = None) -> None:
        self.schema = table.schema
        self.made = made
        self._batches = iter(table.to_batches(max_chunksize=BATCH_ROWS))

    def next_batch(self) -> pa.RecordBatch | None:
        return next(self._batches, None)

    def drain(self) -> int:
        return sum(batch.num_rows for batch in self._batches)


class EngineSession(Closeable):
    """A session of the engine for a single statement, which has one result at a time.

    Other sessions do not see what it registers.

    Every call raises QueryError for what the engine refuses and for an interrupt, and Unavailable where it
    needs more memory than it may have.
    """

    @abstractmethod
    def register(self, name: str, table: pa.Table | SpilledTable) -> None:
        """Let statements read the table by this name. One on the disk is sealed, and read where it lies."""

    @abstractmethod
    def rows_of(self, name: str, schema: pa.Schema) -> RelationRows:
        """Return what takes the rows of a relation, for one that is too large to be in this process twice."""

    @abstractmethod
    def value(self, sql: str, parameters: Mapping[str, object]) -> object:
        """Return the value of the one row and column of `sql`."""

    @abstractmethod
    def run(self, sql: str, parameters: Mapping[str, object]) -> EngineResult: ...

    @abstractmethod
    def read_statement(self, text: str, database: str | None) -> SqlStatement:
        """Parse the text of a query.

        The result has its parameters, its EXPLAIN, and the names whose values come from the client's session.
        """

    @abstractmethod
    def plan(
        self, statement: SqlStatement, values: Mapping[str, object], catalogue: QueryCatalogue
    ) -> Planned:
        """Return the plan of the statement.

        Args:
            values: parameter → value, of the parameters that have values already.
        """

    @abstractmethod
    def show_filter(self, condition: str, first: str) -> str:
        """Return SQL that selects the rows of `shown` by the condition of a SHOW.

        Args:
            first: the column that LIKE is about.
        """

    @abstractmethod
    def interrupt(self) -> None:
        """Interrupt what the session is doing now, if anything. Any thread may call this."""

    def read(self, sql: str, parameters: Mapping[str, object]) -> pa.Table:
        """Return the whole result of a query whose result is known to be small."""
        result, batches = self.run(sql, parameters), []
        while (batch := result.next_batch()) is not None:
            batches.append(batch)
        return pa.Table.from_batches(batches, result.schema)


class EngineSessions(Closeable):
    """The factory of the engine's sessions."""

    @abstractmethod
    def session(self, ending: Cancellation) -> EngineSession:
        """Return a new session for the statement that `ending` belongs to."""


class LazyEngineSession(EngineSession):
    """A session that opens a session of `engine` with its first call, because some statements need none."""

    def __init__(self, engine: EngineSessions, ending: Cancellation) -> None:
        self._engine = engine
        self._ending = ending
        self._lock = threading.Lock()
        self._session: EngineSession | None = None
        self._closed = False

    @property
    def is_open(self) -> bool:
        return self._session is not None

    def register(self, name: str, table: pa.Table | SpilledTable) -> None:
        self._opened().register(name, table)

    def rows_of(self, name: str, schema: pa.Schema) -> RelationRows:
        return self._opened().rows_of(name, schema)

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
