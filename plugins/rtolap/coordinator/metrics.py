"""The Prometheus metrics of a coordinator, out of its memory: no scrape waits for ZooKeeper.

Metrics known to the leader alone (receivers, cubes, segments) are shown by the leader alone; each coordinator
shows the applications that it owns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rtolap.base.metrics import Family, Metrics
from rtolap.coordinator.applications.owned import MOVES, OwnApplications
from rtolap.coordinator.heartbeats import Heartbeats
from rtolap.coordinator.leadership import Leadership
from rtolap.coordinator.placement.rules import PlacementRules
from rtolap.coordinator.retirement.relief import Relief
from rtolap.coordinator.views import Views
from rtolap.coordinator.watermarks import Watermarks
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import SegmentRecord
from rtolap.model.segment import SegmentState

_WAITING = (SegmentState.IMMUTABLE, SegmentState.REMOTE_PERSISTED)


class CoordinatorMetrics:
    """`ticks` times the periodic work; the rest is sampled at each scrape."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        leadership: Leadership,
        heartbeats: Heartbeats,
        watermarks: Watermarks,
        views: Views,
        own: OwnApplications,
        placement: PlacementRules,
        relief: Relief,
    ) -> None:
        self.registry = Metrics("coordinator")
        self.ticks = self.registry.histogram("tick_seconds")
        self._metadata = metadata
        self._leadership = leadership
        self._heartbeats = heartbeats
        self._watermarks = watermarks
        self._views = views
        self._own = own
        self._placement = placement
        self._relief = relief
        self.registry.sampled(self._sample)

    def _sample(self) -> Iterator[Family]:
        leads = self._leadership.is_leader()
        connected = self._metadata.store.connected()
        yield self.registry.value("leading", leads)
        yield self.registry.value("zookeeper_connected", connected)
        yield from self._applications()
        if leads:
            yield from self._receivers()
            yield self._low_watermarks()
            yield from self._segments()
            yield self._shared_places()
            yield from self._replica_sets()

    def _applications(self) -> Iterator[Family]:
        yield self.registry.value("applications", self._own.count())
        yield self.registry.family("application_moves", [((how,), self._own.moves[how]) for how in MOVES])

    def _receivers(self) -> Iterator[Family]:
        heartbeats = self._heartbeats.heard()
        now_ms = self._metadata.clock.now_ms()
        seen = self.registry.family("heartbeat_age_seconds")
        lag = self.registry.family("lag_records")
        for name, heartbeat in sorted(heartbeats.items()):
            seen.add_metric([name], (now_ms - heartbeat.at_ms) / 1000)
            for cube, report in sorted(heartbeat.request.cubes.items()):
                behind = (
                    part.log_end - part.position
                    for part in report.partitions.values()
                    if part.log_end is not None
                )
                lag.add_metric([name, cube], sum(max(records, 0) for records in behind))
        yield seen
        yield lag

    def _low_watermarks(self) -> Family:
        family = self.registry.family("low_watermark_seconds")
        for cube, record in sorted(self._watermarks.all_published().items()):
            if record.low_watermark_ms is not None:
                family.add_metric([cube], record.low_watermark_ms / 1000)
        return family

    def _replica_sets(self) -> Iterator[Family]:
        now_ms = self._metadata.clock.now_ms()
        seen = sorted(self._relief.seen().items())
        states = Counter((one.state,) for _, one in seen)
        missing = [
            ((name,), (now_ms - one.missing_since_ms) / 1000)
            for name, one in seen
            if one.missing_since_ms is not None
        ]
        yield self.registry.family("replica_sets", sorted(states.items()))
        yield self.registry.family("replica_set_missing_seconds", missing)
        moves = [((name,), number) for name, number in sorted(self._relief.planned().items())]
        yield self.registry.family("relief_moves", moves)

    def _shared_places(self) -> Family:
        shared = [
            ((name, each.kind, each.place), len(each.receivers))
            for name, places in sorted(self._placement.seen().items())
            for each in places
        ]
        return self.registry.family("shared_place_receivers", shared)

    def _segments(self) -> Iterator[Family]:
        family = self.registry.family("segments")
        failed = self.registry.family("failed_builds")
        waiting = self.registry.family("waiting_segment_end_seconds")
        for cube, records in sorted(self._views.watched().items()):
            for state, number in sorted(Counter(record.state for record in records.values()).items()):
                family.add_metric([cube, state], number)
            failed.add_metric([cube], sum(_has_failed(record) for record in records.values()))
            ends_ms = [record.range.end_ms for record in records.values() if record.state in _WAITING]
            if ends_ms:
                waiting.add_metric([cube], min(ends_ms) / 1000)
        yield from (family, failed, waiting)


def _has_failed(record: SegmentRecord) -> bool:
    """Return True for a segment that waits for its build, and whose newest attempt reported an error."""
    is_waiting = record.state is SegmentState.REMOTE_PERSISTED
    return is_waiting and record.build is not None and record.build.error is not None
