"""The service that runs a statement, from its text to a stream of batches. Servers call nothing else."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from rtolap.base.clock import Clock
from rtolap.base.errors import QueryError
from rtolap.base.ids import ids
from rtolap.base.spans import span
from rtolap.model.predicate import columns_of
from rtolap.protocols.query.messages import QueryWarning
from rtolap.query import explain
from rtolap.query.admission import AdmissionControl, Turns
from rtolap.query.cancel import Cancellation, Timeouts
from rtolap.query.catalogue import DATABASE, QueryCatalogue
from rtolap.query.cluster.view import Cluster
from rtolap.query.coalescing import Coalescing
from rtolap.query.cubes.fetch import Fetched, Fetcher
from rtolap.query.cubes.history import HistoryEngine
from rtolap.query.cubes.merge import merge
from rtolap.query.cubes.merged_answer import top_groups
from rtolap.query.cubes.planner import narrowed
from rtolap.query.cubes.realtime import Realtime, RealtimeSource
from rtolap.query.cubes.revisions import RevisionFetcher
from rtolap.query.cubes.shared_answer import shared_answer
from rtolap.query.cubes.value_sets import ValueSets
from rtolap.query.engine import SPILL_FOLDER
from rtolap.query.engine_choice import EngineWish
from rtolap.query.engine_session import EngineResult, EngineSession, EngineSessions, TableResult
from rtolap.query.information_schema import (
    INFORMATION_PREFIX,
    information_table,
)
from rtolap.query.lookups import Lookups
from rtolap.query.memory_budget import READ, Account, BudgetLimits, MemoryBudget, read_limits
from rtolap.query.metrics import QueryMetrics
from rtolap.query.plan import CubeRead, LatestRows, ReadStats, Rewritten, TableRead, TableStats
from rtolap.query.query_log.entries import QUERY_LOG, SCHEMA, Asked, entry_of
from rtolap.query.query_log.log import QueryLog
from rtolap.query.query_log.texts import cut
from rtolap.query.relation_rows import CountedRows, RelationRows
from rtolap.query.session_token import SessionPositions, SessionTokens
from rtolap.query.sql.rules.pushdown import relation_name
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
    ) -> None:
        """Create a service that is ready.

        Args:
            engine: where statements run; it is closed with the service. None: worker processes.
            session_tokens: the tokens of the cluster; None: no other service accepts those of this one.
            query_log: the log of statements; it is closed with the service. None: one in memory.
        """
        self.clock = clock
        self.metrics = QueryMetrics()
        self.log = query_log or QueryLog()
        self.log.follow(self.metrics.registry)
        self.session_tokens = session_tokens or SessionTokens(secrets.token_hex())
        self._cluster = cluster
        self._history = history
        self._lookups = lookups
        self._limits = limits
        self._realtime = Realtime(source, clock)
        self._fetcher = RevisionFetcher(Fetcher(cluster, history, self._realtime))
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
        self._statement_cache = StatementCache()
        self._reader = StatementReader(self._statement_cache)
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
                lambda ended: self.log.note(entry_of(asked, started_ms, ended)),
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
            rewritten, catalogue = self._rewrite(statement, {}, session, ending)
            for name in rewritten.lookups:
                session.register(relation_name(name), self._lookups.empty(catalogue.lookups[name]))
            self._register_information(rewritten, catalogue, session, None)
            nothing = dict.fromkeys(rewritten.parameters)
            return self._bound(rewritten, nothing, session), whole

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
        rewritten, catalogue = self._rewrite(statement, values, session, ending)
        for name in rewritten.lookups:
            session.register(relation_name(name), self._lookups.read(catalogue.lookups[name]))
        self._register_information(rewritten, catalogue, session, ending)
        used = {name: values[name] for name in rewritten.parameters}
        if statement.explain == "plan":
            estimates = [self._fetcher.estimate(read, ending) for read in rewritten.reads]
            self._bound(rewritten, used, session)  # what the engine would refuse is raised now
            warnings = _warnings(rewritten, estimates)
            table = explain.planned(rewritten, estimates, warnings)
            stream = self._stream(TableResult(table).next_batch, session, ending)
            return StatementOutcome(table.schema, stream, warnings=warnings)
        began_s = self.clock.monotonic_s()
        account = self._reads.account(ending.user)
        if rewritten.reads or rewritten.tables:  # most statements of a connection pool read nothing
            ending.on_close(account.close)
        try:
            tables = self._read_tables(rewritten, session, ending, account, as_planned=not is_planned_again)
        except DefinitionChanged:  # by another query service, and less than the catalogue's age ago
            self._cluster.catalogue(fresh=True)
            return self._start(statement, values, session, ending, positions, is_planned_again=True)
        result: EngineResult
        cut: tuple[QueryWarning, ...] = ()
        if rewritten.latest is not None:
            stats, latest = self._run_latest(
                *(rewritten, rewritten.latest, used, session, ending, positions, account)
            )
            result = TableResult(latest)
        else:
            sets = ValueSets(rewritten.sets, values, session.read, session.register, ending.check)
            fetched = []
            for cube_read in rewritten.reads:
                narrower = sets.narrowed(cube_read)
                if rewritten.merge is not None:
                    narrower = replace(narrower, top=top_groups(cube_read, rewritten.merge, values))
                fetched.append(self._fetch(narrower, ending, positions, account))
                sets.have(cube_read, fetched[-1].table)
            stats = [replace(each.stats, value_sets=sets.of(each.stats.cube)) for each in fetched]
            cut = self._cut(rewritten, fetched, used, session, sets.registered)
            result = self._run(rewritten, fetched, used, session, sets.registered)
        warnings = (*_warnings(rewritten, stats), *cut)
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

    def _run(
        self,
        rewritten: Rewritten,
        fetched: Sequence[Fetched],
        values: Mapping[str, object],
        session: EngineSession,
        registered: Collection[str],
    ) -> EngineResult:
        """Run the statement over the fetched partials: in the engine, unless it is a plain merge."""
        if rewritten.merge is not None and isinstance(fetched[0].table, pa.Table):
            answer, made = shared_answer(
                rewritten.reads[0], rewritten.merge, fetched[0].table, fetched[0].made, values
            )
            if answer is not None:
                return TableResult(answer, made)
        if rewritten.is_constant:
            known = self._statement_cache.constant_answer(rewritten)
            if known is None:
                known = session.read(rewritten.sql, {})
                self._statement_cache.keep_constant_answer(rewritten, known)
            return TableResult(known)
        for read, each in zip(rewritten.reads, fetched, strict=True):
            if read.relation not in registered:
                session.register(read.relation, each.table)
        return session.run(rewritten.sql, values)

    def _cut(
        self,
        rewritten: Rewritten,
        fetched: Sequence[Fetched],
        values: Mapping[str, object],
        session: EngineSession,
        registered: Collection[str],
    ) -> tuple[QueryWarning, ...]:
        """Return the warnings of joined texts that are cut, each once."""
        if not rewritten.cuts:
            return ()
        for read, each in zip(rewritten.reads, fetched, strict=True):
            if read.relation not in registered:
                session.register(read.relation, each.table)
        found = [
            check.warning
            for check in rewritten.cuts
            if session.value(check.sql, {name: values[name] for name in check.parameters})
        ]
        return tuple(dict.fromkeys(found))

    def _read_tables(
        self,
        rewritten: Rewritten,
        session: EngineSession,
        ending: Cancellation,
        account: Account,
        *,
        as_planned: bool,
    ) -> list[TableStats]:
        if not rewritten.tables:
            return []
        began_s = self.clock.monotonic_s()

        def open_sink(read: TableRead) -> RelationRows:
            return CountedRows(session.rows_of(read.relation, read.relation_schema), account)

        stats = self._tables.read(rewritten.tables, ending, open_sink, as_planned=as_planned)
        for done in stats:
            done.fetch_ms = (self.clock.monotonic_s() - began_s) * 1000
        ending.check()
        return stats

    def _fetch(
        self, read: CubeRead, ending: Cancellation, positions: SessionPositions, account: Account
    ) -> Fetched:
        ending.check()
        began_s = self.clock.monotonic_s()
        fetched = self._fetcher.fetch(read, ending, positions, account)
        if isinstance(fetched.table, pa.Table):
            account.reserve_more(READ, fetched.table.nbytes)
            fetched.stats.partial_bytes = fetched.table.nbytes
        fetched.stats.fetch_ms = (self.clock.monotonic_s() - began_s) * 1000
        fetched.stats.dimensions = tuple(sorted({*read.dimensions, *columns_of(read.filter)}))
        ending.check()
        return fetched

    def _run_latest(
        self,
        rewritten: Rewritten,
        latest: LatestRows,
        values: Mapping[str, object],
        session: EngineSession,
        ending: Cancellation,
        positions: SessionPositions,
        account: Account,
    ) -> tuple[list[ReadStats], pa.Table]:
        (read,) = rewritten.reads
        rows_read, fetch_ms, files_cached, files_remote = 0, 0.0, 0, 0
        for narrower in narrowed(read, latest, self._fetcher.segments(read, ending)):
            account.reserve(READ, 0)  # of the narrower read before
            fetched = self._fetch(narrower, ending, positions, account)
            done = fetched.stats
            session.register(read.relation, fetched.table)
            done.rows_read += rows_read
            done.fetch_ms += fetch_ms
            done.files_cached += files_cached
            done.files_remote += files_remote
            rows_read, fetch_ms = done.rows_read, done.fetch_ms
            files_cached, files_remote = done.files_cached, done.files_remote
            table = session.read(rewritten.sql, values)
            if table.num_rows >= latest.rows:
                break
        return [done], table

    def _bound(self, rewritten: Rewritten, values: Mapping[str, object], session: EngineSession) -> pa.Schema:
        """Return the result's columns, over empty cubes."""
        for read in rewritten.reads:
            session.register(read.relation, merge(read, ()))
        for table in rewritten.tables:
            session.register(table.relation, table.relation_schema.empty_table())
        # LIMIT outside: a parameter in the statement's own LIMIT may be NULL here.
        return session.run(f"SELECT * FROM ({rewritten.sql}) AS described LIMIT 0", values).schema

    def _rewrite(
        self,
        statement: SqlStatement,
        values: Mapping[str, object],
        session: EngineSession,
        ending: Cancellation,
    ) -> tuple[Rewritten, QueryCatalogue]:
        catalogue = self._cluster.catalogue()
        try:
            rewritten = self._rewrite_for(catalogue, statement, values, session)
            if not rewritten.information:
                return rewritten, catalogue
            newest = self._cluster.catalogue(fresh=True)  # it lists what other services define too
            return self._rewrite_for(newest, statement, values, session), newest
        except QueryError:  # perhaps about a definition that is newer than the cached catalogue
            ending.check()
            fresh = self._cluster.catalogue(fresh=True)
            if fresh == catalogue:
                raise
            self._fetcher.forget_cubes_beside(fresh.own_cubes)
            return self._rewrite_for(fresh, statement, values, session), fresh

    def _rewrite_for(
        self,
        catalogue: QueryCatalogue,
        statement: SqlStatement,
        values: Mapping[str, object],
        session: EngineSession,
    ) -> Rewritten:
        return self._statement_cache.rewritten(
            statement, catalogue, values, lambda one, bound: session.plan(one, bound, catalogue)
        )

    def _register_information(
        self,
        rewritten: Rewritten,
        catalogue: QueryCatalogue,
        session: EngineSession,
        ending: Cancellation | None,
    ) -> None:
        """Give the engine the tables of information_schema. `ending`: None where no rows are wanted."""
        for name in rewritten.information:
            if name != QUERY_LOG:
                table = information_table(name, catalogue)
            else:
                table = SCHEMA.empty_table() if ending is None else self._logged(ending)
            session.register(f"{INFORMATION_PREFIX}{name}", table)

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
