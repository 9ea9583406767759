"""The real query service over the in-process cluster: SQL in, answers out, nothing by itself.

What it knows of segments is as old as its last look: its store notifies it of no change, so that queries run
into receivers that have moved on. History is kept as Arrow tables; the engine that reads its files is
`query.history`, whose own tests hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
from rtolap.base.clock import Clock
from rtolap.base.errors import Unavailable
from rtolap.columnar.schema import physical_schema
from rtolap.cubes.receiver.answers.query_service import answer
from rtolap.cubes.receiver.local.align import Vectors
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.merging import units
from rtolap.metadata.records import SegmentRecord, standing
from rtolap.metadata.store import Watch
from rtolap.protocols.receiver.messages import ANSWER_KEY, CubeStats, PartialAnswer, PartialQuery
from rtolap.query.cancel import Cancellation
from rtolap.query.cluster.view import Cluster
from rtolap.query.cubes.arrow_filter import arrow_filter
from rtolap.query.cubes.merge import group_partials
from rtolap.query.cubes.realtime import CancelHook
from rtolap.query.engine import EmbeddedEngine
from rtolap.query.lookups import Lookups
from rtolap.query.memory_budget import Account
from rtolap.query.plan import CubeRead, ReadStats
from rtolap.query.session_token import SessionPositions, SessionTokens
from rtolap.query.statement_service import QueryService

from tests.support.cubes.later_executor import AtOnceExecutor
from tests.support.cubes.stepped_receiver import Receiver
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore


class SteppedQuery:
    """`execute` as its clients call it; `look` takes a fresh view of segments. `up`: receivers that can be
    reached. `vectors`: by partition, what those know who answered last."""

    def __init__(
        self,
        ensemble: MemoryEnsemble,
        clock: Clock,
        cube: str,
        receivers: Sequence[Receiver],
        history: Mapping[str, pa.Table],
        folder: Path,
    ) -> None:
        self._store = _SilentStore(ensemble)
        self._cube = cube
        self._cluster = Cluster(ClusterMetadata(self._store, clock), clock)
        self._source = _Receivers(receivers)
        self.service = QueryService(
            self._cluster,
            _Tables(history),
            self._source,
            Lookups(folder),
            clock,
            engine=EmbeddedEngine(memory_limit_bytes=1 << 30, threads=2),
            session_tokens=SessionTokens("of all query services of the run"),
            ahead_on=AtOnceExecutor(),
        )

    @property
    def vectors(self) -> Mapping[int, Mapping[int, Vectors]]:
        return self._source.vectors

    @property
    def asked_ahead(self) -> int:
        """The number of queries that receivers ahead of a move have answered for nobody."""
        return self._source.asked_ahead

    @property
    def locations(self) -> Mapping[int, str]:
        """The READY versions that it knows, by the start of the segment: the last answer was of these."""
        known = standing(*self._cluster.view(self._cube).snapshot())
        return {record.start_ms: record.location for record in known if record.location is not None}

    @property
    def horizon_ms(self) -> int | None:
        """The purge horizon of the last answer: the view's, as it stands behind it."""
        return self._cluster.view(self._cube).snapshot()[0].horizon_ms

    @property
    def records(self) -> Mapping[str, SegmentRecord]:
        """The records that it knows, without the vectors of those that are READY."""
        return self._cluster.view(self._cube).snapshot()[1]

    def look(self) -> None:
        self._cluster.view(self._cube).refresh()

    def execute(
        self, sql: str, up: Collection[str], session_token: str = ""
    ) -> tuple[pa.Table, dict[int, int], str]:
        """Return the rows, the positions that they hold, and the session's next token. Raises Unavailable and
        StaleSnapshot."""
        self._source.up = frozenset(up)
        self._source.vectors = {}
        tokens = self.service.session_tokens
        session = SessionPositions(tokens.read(session_token))
        outcome = self.service.execute(sql, session_positions=session)
        return outcome.table(), outcome.positions.get(self._cube, {}), tokens.write(session)

    def close(self) -> None:
        self.service.close()
        self._store.close()


class _Receivers:
    """A RealtimeSource that is the cores themselves. Threads of the service call it, while nobody steps."""

    def __init__(self, receivers: Sequence[Receiver]) -> None:
        self._receivers = {one.name: one for one in receivers}
        self.up: Collection[str] = frozenset()
        self.vectors: dict[int, Mapping[int, Vectors]] = {}
        self.asked_ahead = 0

    def ask(
        self, receiver_id: str, address: str, query: PartialQuery, on_start: CancelHook
    ) -> tuple[pa.Table, PartialAnswer]:
        receiver = self._reached(receiver_id).for_epoch(query.snapshot.assignment_epoch)
        vectors = self.vectors
        core = receiver.core
        if core.consumer_state is ConsumerState.STOPPED:
            raise Unavailable(f"{receiver_id} does not consume {query.cube}")
        core.promise(query.at_least)
        table = answer(
            receiver.cluster.schema,
            core.state,
            query,
            owned=core.owned,
            receiver_id=receiver_id,
            progress=core.progress,
            cache=receiver.results,
        )
        said = msgspec.json.decode(table.schema.metadata[ANSWER_KEY], type=PartialAnswer)
        vectors.update(dict.fromkeys(said.positions, receiver.vectors()))
        return table, said

    def ask_ahead(self, receiver_id: str, address: str, query: PartialQuery) -> None:
        """Answer for nobody, also where statements do not reach this receiver yet."""
        one = self._receivers[receiver_id]
        if not one.alive:
            raise Unavailable(f"{receiver_id} does not answer")
        receiver = one.for_epoch(query.snapshot.assignment_epoch)
        core = receiver.core
        answer(
            receiver.cluster.schema,
            core.state,
            query,
            owned=core.owned,
            receiver_id=receiver_id,
            progress=core.progress,
            cache=receiver.results,
        )
        self.asked_ahead += 1

    def stats(self, receiver_id: str, address: str, cube: str) -> CubeStats | None:
        """Return nothing: only EXPLAIN asks for it."""
        self._reached(receiver_id)
        return None

    def ping(self, receiver_id: str, address: str, within_s: float) -> None:
        """Answer always: every peer is waited for, however busy this machine is."""

    def _reached(self, receiver_id: str) -> Receiver:
        if receiver_id not in self.up:
            raise Unavailable(f"{receiver_id} does not answer")
        return self._receivers[receiver_id]


class _Tables:
    """A HistoryEngine of what was built, by its location."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self._tables = tables

    def read(
        self,
        read: CubeRead,
        segments: Sequence[SegmentRecord],
        stats: ReadStats,
        cancellation: Cancellation,
        account: Account,
    ) -> pa.Table:
        schema = physical_schema(read.schema, read.dimensions, read.partials, plain=True)
        found = [schema.empty_table()]
        for unit in units.history_units(segments):
            table = self._tables[unit.location]
            if read.filter is not None:
                table = table.filter(arrow_filter(read.filter, read.schema))
            found.append(table.select(schema.names).cast(schema))
        return group_partials(read, pa.concat_tables(found))

    def estimate(
        self, read: CubeRead, segments: Sequence[SegmentRecord], stats: ReadStats, cancellation: Cancellation
    ) -> None:
        """Return nothing: only EXPLAIN asks for it."""

    def close(self) -> None:
        """Do nothing: it holds nothing."""


class _SilentStore(MemoryStore):
    """A store whose watches never fire."""

    def watch(self, path: str, changed: Callable[[], None]) -> Watch:  # type: ignore[override]
        return _Silence()


class _Silence:
    def stop(self) -> None:
        """Do nothing: there is nothing to stop."""
