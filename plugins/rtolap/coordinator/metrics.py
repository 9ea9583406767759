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
        self.ticks = self.registry.histogram(
            "tick_seconds", "One round of its duties, as an owner and as the leader."
        )
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
        yield self._gauge("leading", "1 while this coordinator leads.", leads)
        yield self._gauge("zookeeper_connected", "1 while its session is connected.", connected)
        yield from self._applications()
        if leads:
            yield from self._receivers()
            yield self._low_watermarks()
            yield from self._segments()
            yield self._shared_places()
            yield from self._replica_sets()

    def _applications(self) -> Iterator[Family]:
        yield self._gauge("applications", "Applications that it owns.", self._own.count())
        moves = self.registry.counter_family(
            "application_moves", "Applications that it has taken, given up to others, and lost.", ["how"]
        )
        for how in MOVES:
            moves.add_metric([how], self._own.moves[how])
        yield moves

    def _gauge(self, what: str, purpose: str, value: float) -> Family:
        family = self.registry.gauge_family(what, purpose)
        family.add_metric((), value)
        return family

    def _receivers(self) -> Iterator[Family]:
        heartbeats = self._heartbeats.heard()
        now_ms = self._metadata.clock.now_ms()
        seen = self.registry.gauge_family("heartbeat_age_seconds", "Since its last heartbeat.", ["receiver"])
        lag = self.registry.gauge_family(
            "lag_records", "Records that its partitions hold and it has not read.", ["receiver", "cube"]
        )
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
        family = self.registry.gauge_family(
            "low_watermark_seconds", "Event time up to which a cube's events are there, Unix time.", ["cube"]
        )
        for cube, record in sorted(self._watermarks.all_published().items()):
            if record.low_watermark_ms is not None:
                family.add_metric([cube], record.low_watermark_ms / 1000)
        return family

    def _replica_sets(self) -> Iterator[Family]:
        now_ms = self._metadata.clock.now_ms()
        states = self.registry.gauge_family(
            "replica_sets", "Replica sets by state, as the leader has seen them last.", ["state"]
        )
        missing = self.registry.gauge_family(
            "replica_set_missing_seconds", "Since none of its receivers lives.", ["replica_set"]
        )
        moves = self.registry.counter_family(
            "relief_moves", "Moves that it has planned off a drained or lost replica set.", ["replica_set"]
        )
        seen = self._relief.seen()
        for state, number in sorted(Counter(one.state for one in seen.values()).items()):
            states.add_metric([state], number)
        for name, one in sorted(seen.items()):
            if one.missing_since_ms is not None:
                missing.add_metric([name], (now_ms - one.missing_since_ms) / 1000)
        for name, number in sorted(self._relief.planned().items()):
            moves.add_metric([name], number)
        yield from (states, missing, moves)

    def _shared_places(self) -> Family:
        family = self.registry.gauge_family(
            "shared_place_receivers",
            "Receivers of a replica set that one machine or rack takes together.",
            ["replica_set", "kind", "place"],
        )
        for name, places in sorted(self._placement.seen().items()):
            for shared in places:
                family.add_metric([name, shared.kind, shared.place], len(shared.receivers))
        return family

    def _segments(self) -> Iterator[Family]:
        family = self.registry.gauge_family("segments", "Segments by state.", ["cube", "state"])
        failed = self.registry.gauge_family(
            "failed_builds", "Segments whose newest build has failed.", ["cube"]
        )
        waiting = self.registry.gauge_family(
            "waiting_segment_end_seconds",
            "End of the earliest segment that is closed and not READY, Unix time.",
            ["cube"],
        )
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
