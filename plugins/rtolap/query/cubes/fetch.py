"""One cube's partials for one statement: history and real time under one snapshot, again if it went stale.
Equal reads of statements that wait are made once for all of them.

The warnings that go with every answer about a cube: that it reads nothing, that it has refused records, or
that events are lost.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
import pyarrow as pa

from rtolap.base.errors import Corrupted, StaleSnapshot, Unavailable
from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.model.completeness import offsets_text
from rtolap.model.cube import Schema
from rtolap.protocols.query.messages import QueryWarning, refused_text
from rtolap.query.cancel import Cancellation
from rtolap.query.cluster import Cluster
from rtolap.query.coalescing import Coalescing, Once
from rtolap.query.cubes.history import HistoryEngine
from rtolap.query.cubes.merge import group_partials, merge
from rtolap.query.cubes.planner import plan_history, plan_realtime
from rtolap.query.cubes.realtime import CountedTwice, Realtime
from rtolap.query.plan import CubeRead, HistoryPlan, ReadStats, ReplicaSetPlan, TimeRange

SNAPSHOTS_MAX = 8  # a snapshot goes stale once a promotion: more in a row is a fault, not traffic
PLANS_MAX = 64  # that are remembered: names and versions of segments, a few kilobytes each
RETRY_WAIT_S = 0.05  # before each further snapshot, times the attempt


_NO_VOID: Mapping[int, int] = {}


class Positions:
    """The largest positions that this service has answered with: one number a partition a cube."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, dict[int, int]] = {}

    def seen(self, cube: str) -> dict[int, int]:
        with self._lock:
            return dict(self._seen.get(cube, {}))

    def advance(self, cube: str, positions: dict[int, int], void: Mapping[int, int] = _NO_VOID) -> None:
        """`void`: positions up to these offsets were reached in records that the topic's log has lost."""
        with self._lock:
            known = self._seen.setdefault(cube, {})
            for partition, offset in positions.items():
                before = known.get(partition, 0)
                is_void = offset < before <= void.get(partition, 0)
                known[partition] = offset if is_void else max(offset, before)

    def keep(self, cubes: set[str]) -> None:
        """Forget cubes that are gone."""
        with self._lock:
            self._seen = {cube: seen for cube, seen in self._seen.items() if cube in cubes}


class Fetched(NamedTuple):
    """The partials of one read. `made`: what several statements that share them make of them."""

    table: pa.Table
    stats: ReadStats
    made: Once | None = None


class _Planned(NamedTuple):
    control: CubeControl
    records: Mapping[str, SegmentRecord]
    plan: HistoryPlan


class Fetcher:
    def __init__(self, cluster: Cluster, history: HistoryEngine, realtime: Realtime) -> None:
        self._cluster = cluster
        self._history = history
        self._realtime = realtime
        self.coalesced: Coalescing[tuple[pa.Table, ReadStats]] = Coalescing()
        self._plans: OrderedDict[tuple[str, TimeRange], _Planned] = OrderedDict()
        self._lock = threading.Lock()
        self.positions = Positions()

    def segments(self, cube: str) -> tuple[SegmentRecord, ...]:
        """All that the cube has records of."""
        return tuple(self._cluster.view(cube).records().values())

    def estimate(self, read: CubeRead, cancellation: Cancellation) -> ReadStats:
        """Return what `fetch` would do, out of one snapshot, manifests and statistics. Raises Corrupted."""
        history, sets = self._plan(read, fresh=False)
        stats = _begun(read, history)
        self._history.estimate(read, history.segments, stats, cancellation)
        self._realtime.estimate(read, history.snapshot, sets, stats, cancellation)
        stats.warnings = self._warnings(read, stats)
        return stats

    def fetch(self, read: CubeRead, cancellation: Cancellation) -> Fetched:
        """All that was answered before the call is in it, whichever statement has made the read.

        Raises Unavailable, Corrupted or StaleSnapshot (when snapshots keep going stale).
        """
        shared = self.coalesced.run(_key(read), lambda: self._fetch(read, cancellation), cancellation)
        table, stats = shared.value
        if shared.statements == 1:
            return Fetched(table, stats)
        stats = replace(stats, statements=shared.statements, is_own=shared.is_own)
        return Fetched(table, stats, shared.made)

    def _fetch(self, read: CubeRead, cancellation: Cancellation) -> tuple[pa.Table, ReadStats]:
        pause = threading.Event()
        cancellation.on_cancel(pause.set)
        for attempt in range(SNAPSHOTS_MAX):
            if attempt:
                pause.wait(RETRY_WAIT_S * attempt)
                cancellation.check()
                self._cluster.view(read.cube).refresh()
            history, sets = self._plan(read, fresh=attempt > 0)
            stats = _begun(read, history)
            stats.snapshots = attempt + 1
            try:
                table = self._read(read, history, sets, stats, cancellation)
                stats.warnings = self._warnings(read, stats)
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
                self._cluster.view(read.cube).refresh()
                if (
                    attempt == SNAPSHOTS_MAX - 1
                    or self._plan(read, fresh=True)[0].segments == history.segments
                ):
                    raise
            except Unavailable:
                if attempt > 0 or self._plan(read, fresh=True)[1] == sets:
                    raise
        raise AssertionError("the loop returns or raises")

    def _plan(self, read: CubeRead, *, fresh: bool) -> tuple[HistoryPlan, tuple[ReplicaSetPlan, ...]]:
        control, records = self._cluster.view(read.cube).snapshot()
        topology = self._cluster.topology(fresh=fresh)
        return self._history_plan(read, control, records), plan_realtime(read.cube, control, topology)

    def _history_plan(
        self, read: CubeRead, control: CubeControl, records: Mapping[str, SegmentRecord]
    ) -> HistoryPlan:
        """The same object as before while the cube's records are: they are looked through once."""
        key = (read.cube, read.time)
        with self._lock:
            known = self._plans.get(key)
            if known is not None and known.control is control and known.records is records:
                self._plans.move_to_end(key)
                return known.plan
        plan = plan_history(read, control, records)
        with self._lock:
            self._plans[key] = _Planned(control, records, plan)
            self._plans.move_to_end(key)
            while len(self._plans) > PLANS_MAX:
                self._plans.popitem(last=False)
        return plan

    def _warnings(self, read: CubeRead, stats: ReadStats) -> tuple[QueryWarning, ...]:
        control, _ = self._cluster.view(read.cube).snapshot()
        return cube_warnings(read.schema, control, stats, read.time)

    def _read(
        self,
        read: CubeRead,
        history: HistoryPlan,
        sets: tuple[ReplicaSetPlan, ...],
        stats: ReadStats,
        cancellation: Cancellation,
    ) -> pa.Table:
        at_least = self.positions.seen(read.cube)
        tables = self._realtime.read(read, history.snapshot, sets, at_least, stats, cancellation)
        if history.segments:
            tables.append(self._history.read(read, history.segments, stats, cancellation))
        is_one_source = sum(table.num_rows > 0 for table in tables) < 2
        cancellation.check()
        self.positions.advance(read.cube, stats.positions, stats.void)
        merged = merge(read, tables)
        if not is_one_source:  # which has grouped its answer as far as is worth it
            merged = group_partials(read, merged)
        stats.partial_rows = merged.num_rows
        return merged


def _key(read: CubeRead) -> Hashable:
    """All that the partials depend on beside the cluster; of definitions the very ones that are known now."""
    condition = msgspec.msgpack.encode(read.filter)  # bytes: as values, 1, 1.0 and TRUE are equal
    return (id(read.schema), read.dimensions, read.partials, condition, read.time)


def _begun(read: CubeRead, history: HistoryPlan) -> ReadStats:
    return ReadStats(
        read.cube,
        history_segments=tuple(history.snapshot.versions),
        pruned_segments=history.pruned,
    )


def cube_warnings(
    schema: Schema, control: CubeControl, stats: ReadStats, time: TimeRange
) -> tuple[QueryWarning, ...]:
    name = schema.cube.name
    warnings: list[QueryWarning] = []
    if not control.enabled and not control.assignment:
        message = (
            f"cube {name} was never enabled: it has read nothing of topic {schema.table.topic}. "
            f"`rtolap create --enable` starts it"
        )
        warnings.append(QueryWarning("not_enabled", "Warning", message))
    elif not control.enabled or control.paused:
        state = "paused" if control.enabled else "disabled"
        message = f"cube {name} is {state}: the answer holds what it had read before"
        warnings.append(QueryWarning("not_consuming", "Warning", message))
    if refused := refused_text(stats.refused, stats.refused_example):
        message = (
            f"cube {name}: {refused}; they are in no count, and in topic {schema.table.dead_letter_topic}"
        )
        warnings.append(QueryWarning("records_refused", "Warning", message))
    warnings += _losses(name, control, time)
    return tuple(warnings)


def _losses(name: str, control: CubeControl, time: TimeRange) -> Iterator[QueryWarning]:
    """Yield the losses of segments that the statement's time touches, unless they are purged."""
    for loss in (*control.losses, *control.version_losses):
        purged = control.horizon_ms is not None and loss.end_ms <= control.horizon_ms
        if not purged and loss.overlaps(time.start_ms, time.end_ms):
            message = (
                f"cube {name} lacks events from {_utc(loss.start_ms)} to {_utc(loss.end_ms)} at most: "
                f"offsets {offsets_text(loss.ranges)} were lost, which {loss.by} accepted at "
                f"{_utc(loss.at_ms)}: {loss.reason}"
            )
            yield QueryWarning("events_lost", "Warning", message)


def _utc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
