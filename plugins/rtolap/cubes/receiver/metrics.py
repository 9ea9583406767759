"""The Prometheus metrics of a receiver: its statistics, taken at each scrape. Its server adds its calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from rtolap.base.metrics import Family, Metrics
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.protocols.receiver.messages import CubeStats, PartitionStats, ReceiverStats

_PARTITION = ("cube", "partition")


class ReceiverMetrics:
    """Counts of events go on over a restart: they are in the checkpoint."""

    def __init__(self, stats: Callable[[], ReceiverStats]) -> None:
        self.registry = Metrics("receiver")
        self._stats = stats
        self.registry.sampled(self._sample)

    def _sample(self) -> Iterator[Family]:
        stats = self._stats()
        memory = self.registry.gauge_family("memory_table_bytes", "Tables in memory, small cuboids included.")
        memory.add_metric((), stats.memory_bytes)
        yield memory
        yield from self._cubes(stats.cubes)
        yield from self._partitions(stats.cubes)
        yield from self._refused(stats.cubes)
        yield from self._segments(stats.cubes)

    def _cubes(self, cubes: tuple[CubeStats, ...]) -> Iterator[Family]:
        leading = self.registry.gauge_family("leading", "1 while it leads its replica set.", ("cube",))
        beside = self.registry.gauge_family(
            "cuboid_bytes", "Small cuboids in memory, beside fragments.", ("cube",)
        )
        freshness = self.registry.gauge_family(
            "freshness_seconds",
            "From a record's creation until answers have it, the longest of the last minute.",
            ("cube",),
        )
        standing = self.registry.gauge_family(
            "consumer_state", "1 for the state that the consumer is in.", ("cube", "state")
        )
        for cube in cubes:
            leading.add_metric((cube.cube,), cube.is_leader)
            beside.add_metric((cube.cube,), cube.cuboid_bytes)
            if cube.freshness_ms is not None:
                freshness.add_metric((cube.cube,), cube.freshness_ms / 1000)
            for state in ConsumerState:
                standing.add_metric((cube.cube, state.value), state.value == cube.state)
        yield leading
        yield beside
        yield freshness
        yield standing

    def _partitions(self, cubes: tuple[CubeStats, ...]) -> Iterator[Family]:
        events = self.registry.counter_family("events", "Events that were taken in.", _PARTITION)
        late = self.registry.counter_family(
            "late_events", "Of them, those after their segment closed.", _PARTITION
        )
        dropped = self.registry.counter_family("dropped_events", "Late ones that were dropped.", _PARTITION)
        hostless = self.registry.counter_family(
            "hostless_events", "Events without a usable host, where hosts decide what closes.", _PARTITION
        )
        filtered = self.registry.counter_family(
            "filtered_records", "Records that the table's condition left out.", _PARTITION
        )
        position = self.registry.gauge_family("position_offset", "The next offset to read.", _PARTITION)
        lag = self.registry.gauge_family("lag_records", "Records up to the end of the log.", _PARTITION)
        watermark = self.registry.gauge_family(
            "watermark_seconds", "The largest event time seen, Unix time.", _PARTITION
        )
        for cube, partition in _each(cubes):
            labels = (cube, str(partition.partition))
            events.add_metric(labels, partition.events)
            late.add_metric(labels, partition.late)
            dropped.add_metric(labels, partition.dropped)
            hostless.add_metric(labels, partition.hostless)
            filtered.add_metric(labels, partition.filtered)
            position.add_metric(labels, partition.position)
            if partition.log_end is not None:
                lag.add_metric(labels, max(partition.log_end - partition.position, 0))
            if partition.watermark_ms is not None:
                watermark.add_metric(labels, partition.watermark_ms / 1000)
        yield from (events, late, dropped, hostless, filtered, position, lag, watermark)

    def _refused(self, cubes: tuple[CubeStats, ...]) -> Iterator[Family]:
        family = self.registry.counter_family(
            "refused_records", "Records that are no events of the table.", ("cube", "reason")
        )
        numbers: Counter[tuple[str, str]] = Counter()
        for cube, partition in _each(cubes):
            for reason, number in partition.rejected.items():
                numbers[cube, reason] += number
        for labels, number in sorted(numbers.items()):
            family.add_metric(labels, number)
        yield family

    def _segments(self, cubes: tuple[CubeStats, ...]) -> Iterator[Family]:
        family = self.registry.gauge_family("segments", "Local segments by state.", ("cube", "state"))
        numbers = Counter((cube.cube, segment.state) for cube in cubes for segment in cube.segments)
        for labels, number in sorted(numbers.items()):
            family.add_metric(labels, number)
        yield family


def _each(cubes: tuple[CubeStats, ...]) -> Iterator[tuple[str, PartitionStats]]:
    return ((cube.cube, partition) for cube in cubes for partition in cube.partitions)
