"""The Prometheus metrics of a receiver: its statistics, taken at each scrape. Its server adds its calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from rtolap.base.metrics import Family, Metrics
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.protocols.receiver.messages import CubeStats, PartitionStats, ReceiverStats

# What is shown of each partition; None: it is not known.
_OF_PARTITIONS: Final[Mapping[str, Callable[[PartitionStats], float | None]]] = {
    "events": lambda it: it.events,
    "late_events": lambda it: it.late,
    "dropped_events": lambda it: it.dropped,
    "hostless_events": lambda it: it.hostless,
    "filtered_records": lambda it: it.filtered,
    "position_offset": lambda it: it.position,
    "lag_records": lambda it: None if it.log_end is None else max(it.log_end - it.position, 0),
    "watermark_seconds": lambda it: None if it.watermark_ms is None else it.watermark_ms / 1000,
}


class ReceiverMetrics:
    """Counts of events go on over a restart: they are in the checkpoint."""

    def __init__(self, stats: Callable[[], ReceiverStats]) -> None:
        self.registry = Metrics("receiver")
        self._stats = stats
        self.registry.sampled(self._sample)

    def _sample(self) -> Iterator[Family]:
        stats = self._stats()
        yield self.registry.value("memory_table_bytes", stats.memory_bytes)
        yield from self._cubes(stats.cubes)
        yield from self._partitions(stats.cubes)
        yield self._refused(stats.cubes)
        yield self._segments(stats.cubes)

    def _cubes(self, cubes: tuple[CubeStats, ...]) -> Iterator[Family]:
        leading = self.registry.family("leading")
        beside = self.registry.family("cuboid_bytes")
        freshness = self.registry.family("freshness_seconds")
        standing = self.registry.family("consumer_state")
        for cube in cubes:
            leading.add_metric((cube.cube,), cube.is_leader)
            beside.add_metric((cube.cube,), cube.cuboid_bytes)
            if cube.freshness_ms is not None:
                freshness.add_metric((cube.cube,), cube.freshness_ms / 1000)
            for state in ConsumerState:
                standing.add_metric((cube.cube, state.value), state.value == cube.state)
        yield from (leading, beside, freshness, standing)

    def _partitions(self, cubes: tuple[CubeStats, ...]) -> Iterator[Family]:
        for name, of in _OF_PARTITIONS.items():
            values = [((cube, str(each.partition)), of(each)) for cube, each in _each(cubes)]
            yield self.registry.family(name, values)

    def _refused(self, cubes: tuple[CubeStats, ...]) -> Family:
        numbers: Counter[tuple[str, str]] = Counter()
        for cube, partition in _each(cubes):
            for reason, number in partition.rejected.items():
                numbers[cube, reason] += number
        return self.registry.family("refused_records", sorted(numbers.items()))

    def _segments(self, cubes: tuple[CubeStats, ...]) -> Family:
        numbers = Counter((cube.cube, segment.state) for cube in cubes for segment in cube.segments)
        return self.registry.family("segments", sorted(numbers.items()))


def _each(cubes: tuple[CubeStats, ...]) -> Iterator[tuple[str, PartitionStats]]:
    return ((cube.cube, partition) for cube in cubes for partition in cube.partitions)
