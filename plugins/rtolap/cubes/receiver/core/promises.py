"""The offsets that a cube's answers have promised, and which partitions are behind them.

Promised are the vectors of open segments, the frontier of history, and the positions that an asker has seen
in an answer before. A receiver of the cube had the events below already. A consumer that waits for history
reads on to them, because statements, and the builds that end the wait, need them. It reads nothing beyond.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

from rtolap.metadata.records import SegmentRecord
from rtolap.metadata.segment_format.pages import HistoryFrontier
from rtolap.model.offsets import Offsets


class Promises:
    """`note` for any thread, the rest for the core's. Bounded by the partitions that the receiver owns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted: Offsets = {}
        self._records: Mapping[int, SegmentRecord] | None = None  # compared by identity
        self._frontier = HistoryFrontier()
        self._vectors: Offsets = {}

    def note(self, offsets: Offsets) -> None:
        """Note that a caller has seen an answer that holds the events below `offsets`."""
        with self._lock:
            for partition, offset in offsets.items():
                self._noted[partition] = max(offset, self._noted.get(partition, offset))

    def behind(
        self,
        positions: Offsets,
        records: Mapping[int, SegmentRecord],
        frontier: HistoryFrontier,
        owned: Collection[int],
    ) -> Offsets:
        """Return the promised offset of each partition whose position is below it."""
        if records is not self._records or frontier is not self._frontier:
            self._vectors = _largest(records, frontier)
            self._records, self._frontier = records, frontier
        with self._lock:
            self._noted = {p: offset for p, offset in self._noted.items() if p in owned}
            noted = self._noted
        return {
            partition: offset
            for partition, position in positions.items()
            for offset in (max(self._vectors.get(partition, 0), noted.get(partition, 0)),)
            if position < offset
        }


def _largest(records: Mapping[int, SegmentRecord], frontier: HistoryFrontier) -> Offsets:
    largest: Offsets = dict(frontier.covered)
    for record in records.values():
        for vector in (record.covered, record.target):
            for partition, offset in vector.items():
                largest[partition] = max(offset, largest.get(partition, offset))
    return largest
