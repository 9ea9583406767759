"""The common rate index of all hosts, for example a daily shape: an index by event time.

The index says how rates have changed in common from one instant to another; its scale means nothing. It is
kept for somewhat more than a day, so the counts of a backlog are compared with those of other hosts at the
same time of day, whenever they come in. From before its first instant nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rtolap.watermark.snapshot import NEVER, Instants, Rates

KEPT_MS = 25 * 3_600_000


@dataclass(slots=True)
class RateIndex:
    """Values at instants `slot_ms` apart. Memory: 8 bytes for each of `KEPT_MS / slot_ms` of them."""

    slot_ms: int
    _values: Rates = field(init=False)
    _first: int = 0
    _last: int = NEVER

    def __post_init__(self) -> None:
        self._values = np.ones(KEPT_MS // self.slot_ms)

    @property
    def nbytes(self) -> int:
        return self._values.nbytes

    @property
    def from_ms(self) -> int:
        """The first instant with a known rate; NEVER before `begin`."""
        return NEVER if self._last == NEVER else self._first * self.slot_ms

    @property
    def front_ms(self) -> int:
        return NEVER if self._last == NEVER else self._last * self.slot_ms

    @property
    def latest(self) -> float:
        return 1.0 if self._last == NEVER else float(self._values[self._last - self._first])

    def begin(self, from_ms: int, front_ms: int) -> None:
        """Begin an index between these instants."""
        self._first = from_ms // self.slot_ms
        self._last = min(front_ms // self.slot_ms, self._first + self._values.size - 1)
        self._values[:] = 1.0

    def advance(self, front_ms: int, grown: float) -> None:
        """Advance the front. Rates have grown by this common factor since the last front, evenly."""
        last = max(front_ms // self.slot_ms, self._last)
        value = self.latest * grown
        size = self._values.size
        steps = last - self._last
        if steps >= size:
            self._first, self._last = last - size + 1, last
            self._values[:] = value
            return
        drop = max(last - self._first + 1 - size, 0)
        if drop:
            drop = min(max(drop, size // 16), self._last - self._first)
            remaining = self._last - self._first + 1 - drop
            self._values[:remaining] = self._values[drop : drop + remaining].copy()
            self._first += drop
        at = self._last - self._first
        self._values[at : at + steps + 1] = np.linspace(self.latest, value, steps + 1) if steps else value
        self._last = last

    def at(self, instants_ms: Instants) -> Rates:
        """Return the index at the instants: before the first instant the first value, beyond the front the
        last."""
        if self._last == NEVER:
            return np.ones(instants_ms.size)
        values: Rates = self._values[
            np.clip(instants_ms // self.slot_ms, self._first, self._last) - self._first
        ]
        return values
