"""The service that runs a statement, from its text to a stream of batches. Servers call nothing else."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from rtolap.base.clock import Clock
from rtolap.base.ids import ids
from rtolap.base.spans import span
from rtolap.protocols.query.messages import QueryWarning
from rtolap.query import explain
from rtolap.query.admission import AdmissionControl, Turns
from rtolap.query.cancel import Cancellation, Timeouts
from rtolap.query.catalogue import DATABASE, QueryCatalogue
from rtolap.query.cluster.view import Cluster
from rtolap.query.coalescing import Coalescing
from rtolap.query.cubes.history import HistoryEngine
from rtolap.query.cubes.queries_ahead import QueriesAhead
from rtolap.query.cubes.realtime import Realtime, RealtimeSource
from rtolap.query.cubes.revisions import RevisionFetcher
from rtolap.query.engine import SPILL_FOLDER
from rtolap.query.engine_choice import EngineWish
from rtolap.query.engine_session import EngineSession, EngineSessions, TableResult
from rtolap.query.execution.reads import Reads, Sources
from rtolap.query.execution.rewriting import Rewriting, result_columns
from rtolap.query.execution.run import Run
from rtolap.query.lookups import Lookups
from rtolap.query.memory_budget import READ, BudgetLimits, MemoryBudget, read_limits
from rtolap.query.metrics import QueryMetrics
from rtolap.query.plan import ReadStats, Rewritten
from rtolap.query.query_log.entries import Asked, Entry
from rtolap.query.query_log.log import QueryLog
from rtolap.query.query_log.texts import cut
from rtolap.query.session_token import SessionPositions, SessionTokens
from rtolap.query.sql.statement import Parameters, SqlStatement
from rtolap.query.statement_cache import StatementCache
from rtolap.query.statement_outcome import ResultStream, StatementOutcome
from rtolap.query.statement_reading import StatementReader
from rtolap.query.stored.definitions import StoredDefinitions
from rtolap.query.stored.reader import DefinitionChanged, StoredReader
from rtolap.query.stored.source import NoSource, StoredSource
from rtolap.query.workers.pool import WorkerPool

TIMEOUT_MS_DEFAULT = 60_000


Complete = Callable[[SqlStatement], SqlStatement]


def as_it_is(statement: SqlStatement) -> SqlStatement:
    """Return the statement as it is: a `Complete` where no session gives values."""
    return statement


@dataclass(frozen=True)
class QueryLimits:
    """The limits of one query service.

    Attributes:
        queue_wait_s: the longest time that a query waits for admission.
        queries_per_user_max: how many of `queries_max` one user may have; None: three quarters.
        statement_ms_max: the longest time of a statement, whatever its client requests.
        spill_free_bytes_min: free bytes of the disk of `spill_folder` that are left to others.
        budget: memory that users may have in the service's own process.
    """

    memory_bytes: int = 1 << 30
    threads: int = 2
    queries_max: int = 16
    queue_wait_s: float = 2.0
    queries_per_user_max: int | None = None
    statement_ms_max: int = 3_600_000
    spill_folder: str = SPILL_FOLDER
    spill_free_bytes_min: int = 0
    budget: BudgetLimits = field(default_factory=BudgetLimits)

    @property
    def turns_per_user(self) -> int:
        return self.queries_per_user_max or self.queries_max - self.queries_max // 4


class QueryService:
    """The service that executes queries within `limits`. `execute` blocks its caller. Thread-safe."""

    def __init__(
        self,
        cluster: Cluster,
        history: HistoryEngine,
        source: RealtimeSource,
        lookups: Lookups,
        clock: Clock,
        limits: QueryLimits = QueryLimits(),
        stored: StoredSource | None = None,
        engine: EngineSessions | None = None,
        session_tokens: SessionTokens | None = None,
        query_log: QueryLog | None = None,
        statement_cache: StatementCache | None = None,
        ahead_on: Executor | None = None,
    ) -> None:
        """Create a service that is ready.

        Args:
            engine: where statements run; it is closed with the service. None: worker processes.
            session_tokens: the tokens of the cluster; None: no other service accepts those of this one.
            query_log: the log of statements; it is closed with the service. None: one in memory.
            statement_cache: what has been read and planned; None: nothing yet.
            ahead_on: where reads are asked for ahead of moves; None: a thread of its own.
        """
        self.clock = clock
        self.metrics = QueryMetrics()
        self.log = query_log or QueryLog()
        self.log.follow(self.metrics.registry)
        self.session_tokens = session_tokens or SessionTokens(secrets.token_hex())
        self._cluster = cluster
        self._history = history
        self._limits = limits
        self._realtime = Realtime(source, clock)
        ahead = QueriesAhead(source, cluster.topology, clock, ahead_on)
        self._fetcher = RevisionFetcher(cluster, history, self._realtime, ahead)
        self._engine = engine or WorkerPool(
            limits.memory_bytes,
            limits.threads,
            limits.queries_max,
            self.metrics.registry,
            spill_folder=limits.spill_folder,
            spill_free_bytes_min=limits.spill_free_bytes_min,
        )
        self._stored = stored or NoSource()
        self._tables = StoredReader(self._stored, limits.memory_bytes, clock)
        self.definitions = StoredDefinitions(self._stored, partial(cluster.catalogue, fresh=True))
        self._reads = MemoryBudget(read_limits(limits.memory_bytes))
        budget = self.budget = MemoryBudget(limits.budget)
        self.metrics.follow_budget(lambda: budget.reserved_bytes, lambda: budget.refusals)
        self._statement_cache = statement_cache or StatementCache()
        self._reader = StatementReader(self._statement_cache)
        self._rewriting = Rewriting(cluster, self._statement_cache, lookups, self._forget_cubes)
        self._sources = Sources(self._fetcher, self._tables, clock)
        self._timeouts = Timeouts(clock)
        admission = AdmissionControl(limits.queries_max, limits.turns_per_user)
        self._turns = Turns(self._engine, admission, limits.queue_wait_s)

    def close(self) -> None:
        self._timeouts.close()
        self._tables.close()
        self._stored.close()
        self._fetcher.close()
        self._realtime.close()
        self._history.close()
        self._cluster.close()
        self._engine.close()
        self.log.close()

    def catalogue(self, *, fresh: bool = False) -> QueryCatalogue:
        return self._cluster.catalogue(fresh=fresh)

    def databases(self, wanted: str) -> tuple[str, ...]:
        """Return the databases; one that is not among them may be new, so they are looked up again then."""
        known = self.catalogue().databases()
        return known if wanted in known else self.catalogue(fresh=True).databases()

    def cancellation(
        self,
        timeout_ms: int | None = None,
        user: str = "",
        engine: EngineWish = "auto",
        door: str = "",
    ) -> Cancellation:
        """Return the cancellation of a new statement.

        Args:
            user: the user whose turn the statement takes; empty for clients that have the cluster's token.
            engine: the engine that the session wishes to read history.
            door: the protocol by which it has come.
        """
        bounded_ms = min(timeout_ms or TIMEOUT_MS_DEFAULT, self._limits.statement_ms_max)
        return Cancellation(self._timeouts, bounded_ms, user, engine, door)

    def check(
        self, text: str, database: str | None = None, cancellation: Cancellation | None = None
    ) -> SqlStatement:
        """Read a text, as a statement's turn comes. Raises QueryError for what is not one query."""
        with self._turns.open(cancellation or self.cancellation()) as session:
            return self._reader.unbound(text, database, session)[1]

    @property
    def rewrites(self) -> int:
        """Return how often a statement had to be rewritten, because it was not known with these values."""
        return self._statement_cache.rewrites

    @property
    def coalesced_reads(self) -> Coalescing[Any]:
        """The reads of cubes that equal statements share."""
        return self._fetcher.coalesced

    def execute(
        self,
        sql: str | SqlStatement,
        parameters: Parameters = (),
        cancellation: Cancellation | None = None,
        session_positions: SessionPositions | None = None,
        *,
        database: str | None = None,
        complete: Complete = as_it_is,
    ) -> StatementOutcome:
        """Execute a query. A text is parsed within the statement's turn.

        Args:
            session_positions: what the statement's session has been answered; None: nothing yet.
            database: database of the tables that a text names without one.
            complete: gives the statement its session's values.

        Raises QueryError and the errors for which a cube cannot answer; see `query.__init__`.
        """
        positions = SessionPositions() if session_positions is None else session_positions
        ending = cancellation or self.cancellation()
        text, of_text = (sql, database) if isinstance(sql, str) else (sql.text, sql.database)
        asked = Asked(cut(text), ending.user, ending.door, of_text or DATABASE, ids().get("statement", ""))
        started_ms = self.clock.now_ms()
        with span("statement"):
            return self.metrics.measure(
                lambda: self._execute(sql, parameters, ending, positions, database, complete),
                lambda ended: self.log.note(Entry(asked, started_ms, ended)),
            )

    def _execute(
        self,
        sql: str | SqlStatement,
        parameters: Parameters,
        ending: Cancellation,
        positions: SessionPositions,
        database: str | None,
        complete: Complete,
    ) -> StatementOutcome:
        with self._turns.open(ending, is_over=False) as session:
            read, left = self._reader.bound(sql, parameters, database, session)
            statement = complete(read)
            values = statement.bind(left)
            return self._start(statement, values, session, ending, positions)

    def describe(
        self,
        sql: str | SqlStatement,
        cancellation: Cancellation | None = None,
        *,
        database: str | None = None,
        complete: Complete = as_it_is,
    ) -> tuple[pa.Schema, SqlStatement]:
        """Return the result columns, and the parsed statement without the session's values.

        It waits for admission, and reads neither receivers nor history.
        """
        ending = cancellation or self.cancellation()
        with self._turns.open(ending) as session:
            read, whole = self._reader.unbound(sql, database, session)
            if read.explain is not None:
                return explain.SCHEMA, whole
            statement = complete(read)
            rewritten, catalogue = self._rewriting.rewrite(statement, {}, session, ending)
            self._rewriting.register(rewritten, catalogue, session, None)
            return result_columns(rewritten, dict.fromkeys(rewritten.parameters), session), whole

    def filtered(self, table: pa.Table, condition: str, cancellation: Cancellation | None = None) -> pa.Table:
        """Return the rows of a small table that meet the condition of a SHOW: LIKE, about the first column,
        WHERE or LIMIT. Waits for admission.
        """
        with self._turns.open(cancellation or self.cancellation()) as session:
            sql = session.show_filter(condition, table.column_names[0])
            session.register("shown", table)
            return session.read(sql, {})

    def _start(
        self,
        statement: SqlStatement,
        values: dict[str, object],
        session: EngineSession,
        ending: Cancellation,
        positions: SessionPositions,
        *,
        is_planned_again: bool = False,
    ) -> StatementOutcome:
        rewritten, catalogue = self._rewriting.rewrite(statement, values, session, ending)
        self._rewriting.register(rewritten, catalogue, session, lambda: self._logged(ending))
        if statement.explain == "plan":
            return self._planned(rewritten, values, session, ending)
        began_s = self.clock.monotonic_s()
        account = self._reads.account(ending.user)
        if rewritten.reads or rewritten.tables:  # most statements of a connection pool read nothing
            ending.on_close(account.close)
        reads = Reads(self._sources, ending, positions, account)
        try:
            tables = reads.tables(rewritten, session, as_planned=not is_planned_again)
        except DefinitionChanged:  # by another query service, and less than the catalogue's age ago
            self._cluster.catalogue(fresh=True)
            return self._start(statement, values, session, ending, positions, is_planned_again=True)
        ran = Run(rewritten, values, session, reads, self._statement_cache).result()
        result, stats = ran.result, ran.stats
        warnings = (*_warnings(rewritten, stats), *ran.warnings)
        if statement.explain == "analyze":
            rows = result.drain()
            by_engine = rewritten.merge is None or not isinstance(result, TableResult)
            elapsed_ms = (self.clock.monotonic_s() - began_s) * 1000
            result = TableResult(
                explain.analyzed(rewritten, stats, tables, rows, elapsed_ms, warnings, by_engine=by_engine)
            )
        stream = self._stream(result.next_batch, session, ending)
        made = result.made if isinstance(result, TableResult) else None
        return StatementOutcome(result.schema, stream, stats, tables, warnings, made)

    def _planned(
        self,
        rewritten: Rewritten,
        values: Mapping[str, object],
        session: EngineSession,
        ending: Cancellation,
    ) -> StatementOutcome:
        """Return what EXPLAIN says of a statement that is not run."""
        estimates = [self._fetcher.estimate(read, ending) for read in rewritten.reads]
        result_columns(rewritten, {name: values[name] for name in rewritten.parameters}, session)
        warnings = _warnings(rewritten, estimates)
        table = explain.planned(rewritten, estimates, warnings)
        stream = self._stream(TableResult(table).next_batch, session, ending)
        return StatementOutcome(table.schema, stream, warnings=warnings)

    def _forget_cubes(self, fresh: QueryCatalogue) -> None:
        self._fetcher.forget_cubes_beside(fresh.own_cubes)

    def _logged(self, ending: Cancellation) -> pa.Table:
        """Return the entries that the statement's user may see. Raises OverBudget."""
        account = self._reads.account(ending.user)
        ending.on_close(account.close)
        table = self.log.table(ending.user)
        account.reserve(READ, table.nbytes)
        return table

    def _stream(
        self, read: Callable[[], pa.RecordBatch | None], session: EngineSession, ending: Cancellation
    ) -> Iterator[pa.RecordBatch]:
        return ResultStream(read, lambda: self._turns.finish(session, ending), ending)


def _warnings(rewritten: Rewritten, stats: Sequence[ReadStats]) -> tuple[QueryWarning, ...]:
    """Return the warnings of the statement, then those of its cubes; each once."""
    of_cubes = (warning for done in stats for warning in done.warnings)
    return tuple(dict.fromkeys((*rewritten.warnings, *of_cubes)))
