"""The load of a cube's partitions, as heartbeats report it: records that arrive, and bytes held."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from weakref import WeakKeyDictionary

from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.local.tables import LocalTable
from rtolap.model.offsets import Offsets

EVERY_S = 10.0  # also the least time over which a rate is measured
SAMPLES_MAX = 6  # a rate is that of the last minute: of this many spans between looks
_NO_BYTES: Mapping[int, int] = {}


class PartitionLoads:
    """The loads of one consumer's partitions. Owned by the thread that sends heartbeats.

    Attributes:
        held_bytes: partition → share of the local data, as of the last look that was due.
    """

    def __init__(self) -> None:
        self.held_bytes: Mapping[int, int] = _NO_BYTES
        self._samples: deque[tuple[float, Offsets]] = deque(maxlen=SAMPLES_MAX)
        self._latest: tuple[float, Offsets] = (float("-inf"), {})

    def look(self, now_s: float, log_ends: Offsets, tables: Iterable[LocalTable]) -> None:
        """Note the ends of the logs. Every `EVERY_S`, the shares of bytes are counted anew."""
        if any(end < self._latest[1].get(partition, end) for partition, end in log_ends.items()):
            self._samples.clear()  # a log has lost its end, or is another topic's: rates begin again
        self._latest = now_s, dict(log_ends)
        if not self._samples or now_s - self._samples[-1][0] >= EVERY_S:
            self._samples.append(self._latest)
            self.held_bytes = held_bytes(tables)

    def records_per_s(self, partition: int) -> float | None:
        """Return the records that arrive; None where the ends of less than `EVERY_S` are known."""
        now_s, ends = self._latest
        first = next(((at_s, seen) for at_s, seen in self._samples if partition in seen), None)
        if first is None or partition not in ends or now_s - first[0] < EVERY_S:
            return None
        return round((ends[partition] - first[1][partition]) / (now_s - first[0]), 2)


class Loads:
    """The loads of all consumers of a receiver, those that read ahead among them. Owned by one thread."""

    def __init__(self) -> None:
        self._by_core: WeakKeyDictionary[CubeReceiver, PartitionLoads] = WeakKeyDictionary()

    def look(self, core: CubeReceiver, now_s: float) -> PartitionLoads:
        loads = self._by_core.setdefault(core, PartitionLoads())
        loads.look(now_s, dict(core.progress.log_ends), core.state.tables())
        return loads


def held_bytes(tables: Iterable[LocalTable]) -> dict[int, int]:
    """Return, by partition, its share of the tables' bytes, small cuboids included.

    A table that holds several partitions counts for each by its part of the table's offsets: rows are
    aggregates of all of them.
    """
    shares: dict[int, float] = {}
    for table in tables:
        spans = {partition: end - start for partition, (start, end) in table.ranges.items()}
        whole = sum(spans.values())
        size = table.nbytes + table.cuboids.nbytes
        for partition, span in spans.items():
            shares[partition] = shares.get(partition, 0.0) + size * span / whole
    return {partition: round(share) for partition, share in shares.items()}
