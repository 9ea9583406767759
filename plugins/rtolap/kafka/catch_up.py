"""Chooses the partitions that are read apart because they are far behind, so that the others stay fresh.

Records of one client come out of one queue: behind the backlog of one partition, a record that has just
arrived at another waits for all of it. The rule has a hysteresis, and none is apart where all are behind:
then there is nobody to protect, and one client is faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CatchUpBounds:
    """behind_records: who is further behind than this at `looks` looks in a row is read apart, until no more
    than near_records behind. share: the part of each batch that is left to the backlog, and all it
    may have, so that no batch takes long. partitions_max: so many catch up at a time, for turn_s each."""

    behind_records: int = 100_000
    near_records: int = 10_000
    looks: int = 3
    look_every_s: float = 0.25
    share: float = 0.25
    partitions_max: int = 8
    turn_s: float = 5.0


class LaneChooser:
    """The rule, look by look. `behind`: those that are to be read apart."""

    def __init__(self, bounds: CatchUpBounds) -> None:
        self._bounds = bounds
        self._seen_behind: dict[int, int] = {}
        self._apart: set[int] = set()

    def choose(self, lags: Mapping[int, int], fixed: Iterable[int] = ()) -> frozenset[int]:
        """The partitions that are to be read apart.

        `lags`: how many records each is behind, as far as known; `fixed`: those whose place is not to change
        now, as that of paused ones.
        """
        bounds, fixed = self._bounds, set(fixed)
        self._apart &= lags.keys() | fixed
        for partition, lag in lags.items():
            if partition in fixed:
                continue
            if partition in self._apart:
                if lag <= bounds.near_records:
                    self._apart.discard(partition)
                    self._seen_behind.pop(partition, None)
            elif lag > bounds.behind_records:
                self._seen_behind[partition] = self._seen_behind.get(partition, 0) + 1
            else:
                self._seen_behind.pop(partition, None)
        behind = {partition for partition, looks in self._seen_behind.items() if looks >= bounds.looks}
        candidates = self._apart | (behind & lags.keys())
        if (lags.keys() | fixed) - candidates:
            self._apart = candidates
        elif not fixed:
            self._apart = set()
        return frozenset(self._apart)

    def forget(self) -> None:
        self._seen_behind.clear()
        self._apart.clear()
