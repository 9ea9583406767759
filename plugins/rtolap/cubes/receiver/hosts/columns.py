"""The progress of hosts in one partition, by their index, and which of it has not been reported yet."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rtolap.cubes.receiver.hosts.batch_progress import NEVER, Int64s


@dataclass(slots=True)
class Columns:
    """`generations`: of producers that state their own progress."""

    latest_ms: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    events: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    changed: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    generations: Int64s = field(default_factory=lambda: np.empty(0, np.int64))

    def grow(self, hosts: int) -> None:
        if hosts > self.latest_ms.size:
            more = max(hosts, 2 * self.latest_ms.size) - self.latest_ms.size
            self.latest_ms = np.pad(self.latest_ms, (0, more), constant_values=NEVER)
            self.events = np.pad(self.events, (0, more))
            self.changed = np.pad(self.changed, (0, more))
            self.generations = np.pad(self.generations, (0, more))

    def keep(self, at: Int64s) -> None:
        """Keep only these hosts, which get new indices. `grow` first."""
        self.latest_ms, self.events = self.latest_ms[at], self.events[at]
        self.changed, self.generations = self.changed[at], self.generations[at]

    def take(self, at: Int64s, latest_ms: Int64s, events: Int64s, generations: Int64s) -> None:
        """Merge rows: within a generation the largest counts, and a later generation replaces the one
        before."""
        stands = self.generations[at]
        accepted = generations >= stands
        at, latest_ms, later = at[accepted], latest_ms[accepted], (generations > stands)[accepted]
        self.latest_ms[at] = np.where(later, latest_ms, np.maximum(self.latest_ms[at], latest_ms))
        self.generations[at] = generations[accepted]
        self.events[at] += events[accepted]
        self.changed[at] = True

    def seen(self) -> Int64s:
        return np.flatnonzero(self.latest_ms != NEVER)

    def kept(self) -> Int64s:
        """Return the hosts that have been read, or have a generation without any progress yet."""
        return np.flatnonzero((self.latest_ms != NEVER) | (self.generations > 0))
