"""Fetches a cube's partials for a statement: history and real time under the same snapshot.

A read is repeated if the snapshot went stale. Equal reads of waiting statements are made once for all of
them.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import NamedTuple

import msgspec
import pyarrow as pa
from cachetools import LRUCache

from rtolap.base.errors import Corrupted, StaleSnapshot, Unavailable
from rtolap.column_types import ColumnType
from rtolap.metadata.records import SegmentRecord
from rtolap.model.offsets import Offsets, larger
from rtolap.protocols.query.messages import QueryWarning
from rtolap.protocols.receiver.messages import GroupsLeft
from rtolap.query.cancel import Cancellation
from rtolap.query.cluster.view import Cluster
from rtolap.query.coalescing import Coalescing, Once
from rtolap.query.cubes.cube_warnings import cube_warnings
from rtolap.query.cubes.history import HistoryEngine
from rtolap.query.cubes.merge import group_partials, merge
from rtolap.query.cubes.queries_ahead import QueriesAhead
from rtolap.query.cubes.realtime import CountedTwice, Realtime
from rtolap.query.cubes.snapshots import Snapshot, Snapshots
from rtolap.query.cubes.spread_groups import ROUNDS_MAX, SpreadGroups, is_spreadable
from rtolap.query.memory_budget import Account
from rtolap.query.plan import CubeRead, HistoryPlan, ReadStats, ReplicaSetPlan
from rtolap.query.session_token import SessionPositions
from rtolap.query.spills.tables import SpilledTable
from rtolap.scan.first_groups import Chosen, Number, choose_groups

SNAPSHOTS_MAX = 9  # a snapshot goes stale once a promotion: more in a row is a fault, not traffic
SIZES_MAX = 1024  # reads whose number of rows is remembered
SPREAD_ROWS_MIN = 10_000  # fewer groups are read as a whole, once for statements of any order
RETRY_WAIT_S = 0.05  # before each further snapshot but the first, times the attempt


class Fetched(NamedTuple):
    """The partials of one read.

    Attributes:
        table: in memory, or on the disk where they are many.
        made: what the statements that share the partials derive from them; None where they are not shared.
    """

    table: pa.Table | SpilledTable
    stats: ReadStats
    made: Once | None = None


_OF_RECEIVERS = (
    *("receivers", "realtime_segments", "realtime_cuboids", "positions", "void"),
    *("refused", "refused_example", "stalled"),
)


class Fetcher:
    def __init__(
        self, cluster: Cluster, history: HistoryEngine, realtime: Realtime, ahead: QueriesAhead
    ) -> None:
        self._cluster = cluster
        self._ahead = ahead
        self._history = history
        self._realtime = realtime
        self.coalesced: Coalescing[tuple[pa.Table | SpilledTable, ReadStats]] = Coalescing()
        self._sizes: LRUCache[tuple[str, tuple[str, ...]], int] = LRUCache(SIZES_MAX)  # rows of the last read
        self._lock = threading.Lock()
        self._snapshots = Snapshots(cluster)
        self._answered = SessionPositions()  # by this service, to anybody

    def segments(self, read: CubeRead, cancellation: Cancellation) -> tuple[SegmentRecord, ...]:
        """Return all segments of the read's time that the cube has records of."""
        return tuple(self._snapshots.identified(read, cancellation)[2].values())

    def estimate(self, read: CubeRead, cancellation: Cancellation) -> ReadStats:
        """Return what `fetch` would do, out of one snapshot, manifests and statistics. Raises Corrupted."""
        _, history, sets, _ = self._snapshots.take(read, cancellation, fresh=False)
        stats = _begun(read, history)
        self._history.estimate(read, history.segments, stats, cancellation)
        self._realtime.estimate(read, history.snapshot, sets, stats, cancellation)
        stats.warnings = self._warnings(read, stats)
        return stats

    def fetch(
        self, read: CubeRead, cancellation: Cancellation, session: SessionPositions, account: Account
    ) -> Fetched:
        """Fetch a read. Everything that was answered before the call is in it: to any session by this
        service, and to this session by any service. The session's positions advance with it.

        Args:
            account: where memory is reserved while history is read.

        Raises Unavailable, Corrupted, OverBudget or StaleSnapshot (when snapshots keep going stale).
        """
        beyond = self._beyond(read, session, cancellation)
        if read.top is not None and not (self._is_of_one_receiver(read) or self._is_spread(read)):
            read = replace(read, top=None)  # so that statements of other orders share the read
        key = (*_key(read), cancellation.engine, tuple(sorted(beyond.items())))
        shared = self.coalesced.run(
            key, lambda: self._fetch(read, cancellation, beyond, account), cancellation
        )
        table, stats = shared.value
        if read.top is None:
            self._remember(read, stats.partial_rows)
        session.advance(read.cube, stats.cube_id, stats.positions, stats.void)
        session.forget_creations_beside(read.cube, stats.cube_id)
        if shared.statements == 1:
            return Fetched(table, stats)
        stats = replace(stats, statements=shared.statements, is_own=shared.is_own)
        return Fetched(table, stats, shared.made)

    def forget_cubes_beside(self, cubes: Collection[str]) -> None:
        """Forget positions of cubes that are gone."""
        self._answered.keep(cubes)

    def close(self) -> None:
        """End looks and queries ahead, without waiting for one under way."""
        self._ahead.close()
        self._snapshots.close()

    def _beyond(self, read: CubeRead, session: SessionPositions, cancellation: Cancellation) -> Offsets:
        """Return the session's positions, and those at which the cube was filled with older events, that are
        larger than those this service has answered with."""
        cube, revision = read.cube, read.schema.cube.revision
        filled_at = {} if revision is None else dict(revision.filled_at)
        view = self._cluster.view(cube)
        cube_id = view.cube_id()
        if session.identities(cube) - {cube_id}:  # of a creation before the one known here, or after it
            self._snapshots.refresh(cube, cancellation)
            cube_id = view.cube_id()
        answered = self._answered.of(cube, cube_id)
        wanted = larger(session.of(cube, cube_id), filled_at)
        return {p: at for p, at in wanted.items() if at > answered.get(p, 0)}

    def _is_of_one_receiver(self, read: CubeRead) -> bool:
        """Tell, without waiting, whether one replica set has all that is read, by what is known now."""
        control, known = self._cluster.view(read.cube).known()
        if len(control.assignment) != 1 or known.missing(read.time.start_ms, read.time.end_ms):
            return False
        records = known.within(read.time.start_ms, read.time.end_ms)
        return not self._snapshots.history_plan(read, control, records).segments

    def _is_spread(self, read: CubeRead) -> bool:
        """Tell whether the first groups are looked for in several sources: where there were many groups."""
        with self._lock:
            known = self._sizes.get((read.cube, read.dimensions), 0)
        return known >= SPREAD_ROWS_MIN and is_spreadable(read)

    def _remember(self, read: CubeRead, rows: int) -> None:
        with self._lock:
            self._sizes[read.cube, read.dimensions] = rows

    def _fetch(
        self, read: CubeRead, cancellation: Cancellation, beyond: Offsets, account: Account
    ) -> tuple[pa.Table | SpilledTable, ReadStats]:
        pause = threading.Event()
        cancellation.on_cancel(pause.set)
        for attempt in range(SNAPSHOTS_MAX):
            if attempt:
                pause.wait(RETRY_WAIT_S * (attempt - 1))  # a look is mostly enough, as when a move ends
                cancellation.check()
                self._snapshots.refresh(read.cube, cancellation)
            taken = self._snapshots.take(read, cancellation, fresh=attempt > 0)
            stats = _begun(read, taken.history)
            stats.cube_id, stats.snapshots = taken.cube_id, attempt + 1
            try:
                table = self._read(read, taken, beyond, stats, cancellation, account)
                stats.warnings = self._warnings(read, stats)
                self._ahead.offer(read, taken.history.snapshot, self._cluster.view(read.cube).control())
                return table, stats
            except StaleSnapshot:
                if attempt == SNAPSHOTS_MAX - 1:
                    raise
            except CountedTwice as error:
                if attempt == SNAPSHOTS_MAX - 1:
                    raise Unavailable(
                        f"the assignment of {read.cube} does not settle", found=str(error), action="retry"
                    ) from error
            except Corrupted:
                # A version that was replaced meanwhile may have lost its files by right: look again.
                self._snapshots.refresh(read.cube, cancellation)
                if (
                    attempt == SNAPSHOTS_MAX - 1
                    or self._snapshots.take(read, cancellation, fresh=True).history.segments
                    == taken.history.segments
                ):
                    raise
            except Unavailable:
                if attempt > 0 or self._snapshots.take(read, cancellation, fresh=True).sets == taken.sets:
                    raise
        raise AssertionError("the loop returns or raises")

    def _warnings(self, read: CubeRead, stats: ReadStats) -> tuple[QueryWarning, ...]:
        control = self._cluster.view(read.cube).control()
        return cube_warnings(read.schema, control, stats, read.time)

    def _spread(
        self,
        read: CubeRead,
        taken: Snapshot,
        built: pa.Table | None,
        at_least: dict[int, int],
        stats: ReadStats,
        cancellation: Cancellation,
    ) -> list[pa.Table] | None:
        """Return rows of the groups that may be among the first, with all of their parts, from several
        sources; None if all groups have to be read.

        Args:
            built: the rows of history; None: there is none.
        """
        assert read.top is not None, "the first groups are asked for"
        (key,) = read.dimensions
        kind = next(each.type for each in read.schema.partials if each.name == read.top.column)
        groups = SpreadGroups(key, kind, read.top)
        for number in range(1, ROUNDS_MAX + 1):
            question = groups.question
            done = _begun(read, taken.history)
            tables = self._realtime.read(
                replace(read, top=question), taken.history.snapshot, taken.sets, at_least, done, cancellation
            )
            parts: list[Chosen] = []
            for plan, table in zip(taken.sets, tables, strict=True):
                left = done.left.get(plan.replica_set)
                if left is None:  # an older receiver
                    return None
                parts.append(Chosen(table, _largest(left, kind)))
            if built is not None:
                above = None if question.above is None else _largest(GroupsLeft(question.above), kind)
                parts.append(choose_groups(built, key, question.column, question.rows, question.among, above))
            found = groups.take(parts)
            if found is not None:
                _add(stats, done)
                stats.top_rounds = number
                return found
            if groups.is_too_large:
                return None
        return None

    def _read(
        self,
        read: CubeRead,
        taken: Snapshot,
        beyond: Offsets,
        stats: ReadStats,
        cancellation: Cancellation,
        account: Account,
    ) -> pa.Table | SpilledTable:
        cube_id, history, sets, ended = taken
        at_least = {**self._answered.of(read.cube, cube_id), **beyond}
        if not ended:
            _check_assigned(read.cube, at_least, sets)
        holds_all = not history.segments and len(sets) == 1  # then its first groups are those of the answer
        asked = read if holds_all else replace(read, top=None)
        is_spread = not holds_all and is_spreadable(read)
        tables: list[pa.Table] | None = None
        if not is_spread:  # receivers first: while history is read, they may drop what the snapshot asks for
            tables = self._realtime.read(asked, history.snapshot, sets, at_least, stats, cancellation)
        spilled: SpilledTable | None = None
        built: pa.Table | None = None
        if history.segments:
            found = self._history.read(read, history.segments, stats, cancellation, account)
            if isinstance(found, SpilledTable):
                spilled = found
            else:
                built = found
        if is_spread and spilled is None:
            tables = self._spread(read, taken, built, at_least, stats, cancellation)
        if stats.top_rounds == 0:
            if tables is None:
                tables = self._realtime.read(asked, history.snapshot, sets, at_least, stats, cancellation)
            tables += [] if built is None else [built]
        assert tables is not None, "receivers are asked one way or the other"
        if ended:
            stats.positions.update(at_least)
        stats.top_groups = asked.top is not None
        is_one_source = sum(table.num_rows > 0 for table in tables) < 2
        cancellation.check()
        self._answered.advance(read.cube, cube_id, stats.positions, stats.void)
        merged = merge(read, tables)
        if not is_one_source:  # which has grouped its answer as far as is worth it
            merged = group_partials(read, merged)
        stats.partial_rows = merged.num_rows
        if spilled is None:
            return merged
        spilled.write(merged)  # rows of one group may stay apart: whoever reads them merges them anyway
        spilled.seal()
        stats.partial_rows = spilled.num_rows
        return spilled


def _largest(left: GroupsLeft, kind: ColumnType) -> Number | None:
    if left.largest is None:
        return None
    return Decimal(left.largest) if kind.kind == "decimal" else int(left.largest)


def _add(stats: ReadStats, done: ReadStats) -> None:
    """Add to a read's statistics those of its last round over receivers."""
    stats.rows_read += done.rows_read
    stats.rows_pruned += done.rows_pruned
    for name in _OF_RECEIVERS:
        setattr(stats, name, getattr(done, name))


def _check_assigned(cube: str, at_least: Offsets, sets: Sequence[ReplicaSetPlan]) -> None:
    """Raise StaleSnapshot where the assignment known here is older than one that answered before."""
    missing = sorted(at_least.keys() - {partition for each in sets for partition in each.partitions})
    if missing:
        raise StaleSnapshot(
            f"partitions {missing} of {cube} were answered for and are assigned to nobody here",
            expected="an assignment that has them",
            found=f"replica sets {', '.join(each.replica_set for each in sets) or 'none'}",
            action="take a new snapshot",
        )


def _key(read: CubeRead) -> tuple[Hashable, ...]:
    """Return all that the partials depend on beside the cluster; of definitions the very ones that are known
    now.
    """
    condition = msgspec.msgpack.encode(read.filter)  # bytes: as values, 1, 1.0 and TRUE are equal
    return (id(read.schema), read.dimensions, read.partials, condition, read.time, read.top)


def _begun(read: CubeRead, history: HistoryPlan) -> ReadStats:
    return ReadStats(
        read.cube,
        history_segments=tuple(history.snapshot.versions),
        pruned_segments=history.pruned,
    )
