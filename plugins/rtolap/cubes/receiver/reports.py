"""The reports of a receiver about itself: stats for people, a heartbeat a second for the coordinator."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rtolap.base.clock import Clock
from rtolap.base.decoding import convert
from rtolap.base.errors import RtolapError
from rtolap.columnar.time_zones import rules_of
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.loads import Loads, PartitionLoads
from rtolap.cubes.receiver.local.checkpoint import PartitionCounters
from rtolap.cubes.receiver.local.tables import LocalSegment
from rtolap.cubes.receiver.runner import CubeRunner
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.store import Election
from rtolap.model.completeness import Completeness
from rtolap.model.segment import SegmentRange
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import (
    CubeReport,
    HeartbeatRequest,
    LateEventInfo,
    PartitionRange,
    PartitionReport,
)
from rtolap.protocols.receiver.messages import CubeStats, LocalSegmentStats, PartitionStats

ACTIVE_MAX = 1000  # names in a heartbeat: a replay of small windows has more open segments than anybody reads
_NONE = PartitionCounters()

log = logging.getLogger(__name__)

HEARTBEAT_EVERY_S = 1.0


def cube_stats(core: CubeReceiver, clock: Clock, *, is_leader: bool) -> CubeStats:
    state, progress = core.state, core.progress
    now_s = clock.monotonic_s()
    partitions = tuple(
        PartitionStats(
            partition=part,
            position=position,
            log_end=progress.log_ends.get(part),
            watermark_ms=counters.watermark_ms,
            idle=progress.idle(state.positions, part, now_s),
            events=counters.events,
            rejected=dict(counters.rejected),
            late=counters.late,
            dropped=counters.dropped,
            hostless=counters.hostless,
            filtered=counters.filtered,
        )
        for part, position in sorted(state.positions.items())
        for counters in (progress.counters.get(part, _NONE),)
    )
    segments = tuple(
        stats for _, segment in sorted(state.segments.items()) for stats in _segment_stats(core, segment)
    )
    return CubeStats(
        cube=core.schema.cube.name,
        state=core.consumer_state.value,
        reason=core.reason,
        is_leader=is_leader,
        partitions=partitions,
        segments=segments,
        refused_example=progress.example(),
        cuboid_bytes=sum(table.cuboids.nbytes for table in state.tables()),
        freshness_ms=progress.freshness.longest_ms(now_s),
    )


def _segment_stats(core: CubeReceiver, segment: LocalSegment) -> list[LocalSegmentStats]:
    """Return a line for each version of the segment.

    ACTIVE: the version is not closed here. IMMUTABLE: its vector is known. STRADDLING: it is yet to be cut.
    """
    name = SegmentRange(segment.start_ms, segment.start_ms + core.schema.cube.segment.window_ms).name
    vectors = core.state.vectors.get(segment.start_ms)
    stats: list[LocalSegmentStats] = []
    for version in sorted({table.version for table in segment.tables}):
        tables = [table for table in segment.tables if table.version == version]
        closed = vectors is not None and version == vectors.version + 1 and bool(vectors.target)
        state = "IMMUTABLE" if closed else "ACTIVE"
        if any(table.straddles for table in tables):
            state = "STRADDLING"
        stats.append(
            LocalSegmentStats(
                segment=name,
                version=version,
                state=state,
                events=sum(table.events for table in tables),
                memory_rows=sum(table.rows for table in tables if table.in_memory),
                fragments=sum(not table.in_memory for table in tables),
                bytes=sum(table.nbytes for table in tables),
            )
        )
    return stats


def cube_report(core: CubeReceiver, clock: Clock, loads: PartitionLoads | None = None) -> CubeReport:
    """Return the cube's part of a heartbeat. Without `loads`, it says nothing of them."""
    now_s = clock.monotonic_s()
    state, progress, active = core.state, core.progress, _active(core)
    return CubeReport(
        state=core.consumer_state.value,
        reason=core.reason,
        assignment_epoch=core.assignment_epoch,
        partitions={
            part: PartitionReport(
                position=position,
                log_end=progress.log_ends.get(part),
                watermark_ms=counters.watermark_ms,
                idle=progress.idle(state.positions, part, now_s),
                hostless_events=counters.hostless,
                filtered_records=counters.filtered,
                refused=dict(counters.rejected),
                records_per_s=None if loads is None else loads.records_per_s(part),
                held_bytes=None if loads is None else loads.held_bytes.get(part, 0),
            )
            for part, position in state.positions.items()
            for counters in (progress.counters.get(part, _NONE),)
        },
        active=active if len(active) <= ACTIVE_MAX else (*active[: ACTIVE_MAX - 1], active[-1]),
        more_active=len(active) > ACTIVE_MAX,
        refused_example=progress.example(),
        lost=tuple(
            PartitionRange(partition=piece.partition, start=piece.start, end=piece.end) for piece in core.lost
        ),
        held_since_ms=core.paused_since_ms,
        behind=core.behind,
        late=tuple(
            LateEventInfo(partition=each.partition, offset=each.offset, event_ms=each.event_ms)
            for each in progress.late
        ),
        freshness_ms=progress.freshness.longest_ms(now_s),
        zone_rules=rules_of(core.schema.table.time.zone),
    )


def _active(core: CubeReceiver) -> tuple[str, ...]:
    """Return names of the segments that have local events and no vector yet, the oldest first."""
    window_ms, state = core.schema.cube.segment.window_ms, core.state
    starts = sorted(
        start for start, segment in state.segments.items() if segment.tables and start not in state.vectors
    )
    return tuple(SegmentRange(start, start + window_ms).name for start in starts)


@dataclass(eq=False)
class Heartbeats:
    """`run` on a thread of its own. `runners` gives the cubes that are served now, by name; `not_started`
    those that this receiver cannot start, with the reason: they are reported as FAILED; `ahead` those that
    are read for an assignment that is prepared."""

    receiver_id: str
    replica_set: str
    token: str = field(repr=False)
    metadata: ClusterMetadata
    election: Election
    clock: Clock
    runners: Callable[[], Mapping[str, CubeRunner]]
    not_started: Callable[[], Mapping[str, str]]
    ahead: Callable[[], Mapping[str, CubeRunner]]
    _coordinators: tuple[str, ...] = field(default=(), init=False)
    _client: CoordinatorClient | None = field(default=None, init=False)
    _loads: Loads = field(default_factory=Loads, init=False)

    def run(self, stopping: threading.Event) -> None:
        while not stopping.wait(HEARTBEAT_EVERY_S):
            try:
                self._beat()
            except RtolapError as error:
                log.info("heartbeat: %s", error)
            except Exception:
                log.exception("heartbeat")
        if self._client is not None:
            self._client.close()

    def _beat(self) -> None:
        runners = self.runners()
        client = self._coordinator()
        if client is None:
            return
        response = client.heartbeat(
            HeartbeatRequest(
                receiver_id=self.receiver_id,
                replica_set=self.replica_set,
                is_leader=self.election.is_leader(),
                cubes={
                    **{
                        name: CubeReport(state=ConsumerState.FAILED, reason=reason)
                        for name, reason in self.not_started().items()
                    },
                    **{
                        name: self._report(runner.core)
                        for name, runner in runners.items()
                        if runner.core.assignment_epoch  # 0: another cube may have the name by now
                    },
                },
                warming={name: self._report(runner.core) for name, runner in self.ahead().items()},
            )
        )
        for name, low_watermark_ms in response.low_watermark_ms.items():
            if name in runners:
                runners[name].offer_watermark(low_watermark_ms)
        for name, windows in response.windows.items():
            if name in runners:
                runners[name].offer_windows(
                    tuple(convert(window.model_dump(), Completeness) for window in windows)
                )

    def _report(self, core: CubeReceiver) -> CubeReport:
        return cube_report(core, self.clock, self._loads.look(core, self.clock.monotonic_s()))

    def _coordinator(self) -> CoordinatorClient | None:
        """Return a client of the coordinator. Coordinators are found where they stand for election; without
        ZooKeeper the last ones are kept."""
        if self.metadata.store.connected():
            urls: Sequence[str] = self.metadata.coordinators()
            if urls and set(urls) != set(self._coordinators):
                if self._client is not None:
                    self._client.close()
                self._coordinators = tuple(urls)
                self._client = CoordinatorClient(urls, self.token, learnt=True)
        return self._client
