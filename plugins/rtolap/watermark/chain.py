"""Downstream of another system: its producers write their global low watermark into every record, and a
control record a second to every partition.

Per (producer, partition) the largest counts; together the smallest. A partition in which a producer has not
spoken yet is unknown, so that is the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class Chain:
    """What one reader of `partitions` has been told. Order and repetition of records make no difference."""

    def __init__(self, partitions: Iterable[int], producers: Iterable[str]) -> None:
        self._partitions = frozenset(partitions)
        self._told: dict[str, dict[int, int]] = {producer: {} for producer in producers}
        self._published_ms: int | None = None

    def observe(self, producer: str, partition: int, watermark_ms: int) -> None:
        """Told in a record of that partition. A producer that was not known joins."""
        if partition not in self._partitions:
            return  # given away meanwhile: somebody else reads it
        told = self._told.setdefault(producer, {})
        told[partition] = max(told.get(partition, watermark_ms), watermark_ms)

    def join(self, producer: str) -> None:
        self._told.setdefault(producer, {})

    def leave(self, producer: str) -> None:
        """It has ended, or its lease has; what it said no longer counts."""
        self._told.pop(producer, None)

    def assign(self, partitions: Iterable[int]) -> None:
        """Reads these from now on; of those it gives away nothing is kept."""
        self._partitions = frozenset(partitions)
        for told in self._told.values():
            for partition in told.keys() - self._partitions:
                del told[partition]

    def watermark_ms(self) -> int | None:
        """Never smaller than before; None while unknown."""
        words = [told.get(partition) for told in self._told.values() for partition in self._partitions]
        known = [word for word in words if word is not None]
        if words and len(known) == len(words):
            least = min(known)
            self._published_ms = least if self._published_ms is None else max(least, self._published_ms)
        return self._published_ms

    def held_by(self) -> Mapping[str, tuple[int, ...]]:
        """Producer → partitions in which it has said nothing yet."""
        return {
            producer: tuple(sorted(self._partitions - told.keys()))
            for producer, told in self._told.items()
            if self._partitions - told.keys()
        }
