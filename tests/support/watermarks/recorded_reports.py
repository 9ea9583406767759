"""A client of watermarks that keeps reports, as the coordinator would: for those who report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Call(NamedTuple):
    level: str
    partition: int
    generation: int
    hosts: tuple[str, ...]
    partitions: int


class RecordedReports:
    """Reports that are recorded. `progress` is partition → host → the largest that was reported, in the
    newest generation there. Every report counts as taken at once. `input_ms` is what it answers as the
    input watermark of every level."""

    def __init__(self, input_ms: int | None = None) -> None:
        self.input_ms = input_ms
        self.calls: list[Call] = []
        self.progress: dict[int, dict[str, int]] = {}
        self._generations: dict[int, int] = {}

    def report_progress(
        self,
        level: str,
        partition: int,
        generation: int,
        hosts: Sequence[str],
        latest_ms: ArrayLike,
        counts: ArrayLike | None = None,
        *,
        partitions: int = 0,
    ) -> None:
        self.calls.append(Call(level, partition, generation, tuple(hosts), partitions))
        before = self._generations.setdefault(partition, generation)
        if generation < before:
            return
        if generation > before:
            self._generations[partition] = generation
            self.progress.pop(partition, None)
        told = self.progress.setdefault(partition, {})
        for host, at_ms in zip(hosts, np.asarray(latest_ms).tolist(), strict=True):
            told[host] = max(told.get(host, at_ms), at_ms)

    def has_taken(self, level: str, partition: int, generation: int) -> bool:
        return self._generations.get(partition) == generation

    def input_watermark(self, level: str) -> int | None:
        return self.input_ms

    def approved_until(self) -> int | None:
        return None

    def close(self, timeout_s: float) -> None: ...

    def awaited(self) -> set[int]:
        """Return the partitions, of all that the last report counted, of which nothing was reported."""
        return set(range(self.calls[-1].partitions)) - self.progress.keys()

    def watermark_ms(self) -> int | None:
        """Return the watermark by the rule that allows nobody to be late: a host counts with the smallest of
        its partitions, and all partitions are awaited."""
        if not self.calls or self.awaited():
            return None
        return min(at_ms for told in self.progress.values() for at_ms in told.values())
