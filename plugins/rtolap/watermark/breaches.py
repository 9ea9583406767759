"""Windows that missed more than declared, which is found as the missing events come in.

A bound on missing events rests on estimated rates. A host that begins to log, or logs more, at the moment at
which it falls silent is beyond any estimate. Its events come in later, and show how many were missing:

    published(mark)   windows that end at or before the mark have closed
    observe(reports)  a host has been read from one instant to another, and logged so many events between

Events are counted by slots of event time, evenly between the two instants of a report. An event that comes
in for a window that has closed was missing of it. Where a report spans more than a window nobody knows where
its events are: they count at its end, and each window that it touches may have missed all of them.

Windows may end at any slot. The first ones after the beginning are not judged: their events were counted by
somebody else. A host that never comes back is not found; its lease says for how long it is waited for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

import numpy as np
from numpy.typing import NDArray

from rtolap.watermark.missing import PPM
from rtolap.watermark.snapshot import NEVER, Instants, Rates

SLOT_MS = 10_000
KEPT_MS = 25 * 3_600_000
_NOISE_EVENTS = 1e-6
_SLOTS_MAX = 360  # of a window; those of a longer one are longer


@dataclass(frozen=True, slots=True)
class Breach:
    """A window that ended at `window_end_ms` had lacked `missing_ppm` of its events, so far as they have come
    in, and `bound_ppm` were declared at most."""

    window_end_ms: int
    missing_ppm: int
    bound_ppm: int


@dataclass(slots=True)
class Breaches:
    """The breaches of a declared bound. Not thread-safe. It takes 17 bytes for each slot of a day.

    Attributes:
        bound_ppm: the bound as declared.
    """

    bound_ppm: int
    window_ms: int
    breached_windows: int = 0
    _slot_ms: int = field(init=False)
    _window: int = field(init=False)  # slots
    _first: int = NEVER  # slot of the arrays' first entry
    _judged_from: int = NEVER
    _mark: int = NEVER  # windows that end at or before this slot have closed
    _events: Rates = field(init=False)
    _missing: Rates = field(init=False)  # of the window that ends at the slot's beginning
    _found: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self._slot_ms = max(min(SLOT_MS, self.window_ms), self.window_ms // _SLOTS_MAX)
        self._window = self.window_ms // self._slot_ms
        size = (KEPT_MS + self.window_ms) // self._slot_ms
        self._events, self._missing = np.zeros(size), np.zeros(size)
        self._found = np.zeros(size, np.bool_)

    @property
    def nbytes(self) -> int:
        return self._events.nbytes + self._missing.nbytes + self._found.nbytes

    def published(self, mark_ms: int) -> None:
        """Note that all windows that end at or before the mark have closed; a mark never falls."""
        self._mark = max(self._mark, mark_ms // self._slot_ms)

    def observe(self, from_ms: Instants, to_ms: Instants, events: NDArray[np.integer]) -> None:
        """Note how many events of each host were read that are of the time between these instants; `from_ms`
        is NEVER where the beginning is not known: then they count as of `to_ms`."""
        counted = (events > 0) & (to_ms >= 0)
        if not counted.any():
            return
        to_ms, number = to_ms[counted], events[counted].astype(np.float64)
        from_ms = np.where(from_ms[counted] == NEVER, to_ms - 1, np.minimum(from_ms[counted], to_ms - 1))
        self._make_room(int(to_ms.max()) // self._slot_ms, int(to_ms.min()) // self._slot_ms)
        least_ms = self._first * self._slot_ms
        inside = to_ms > least_ms
        from_ms, to_ms, number = np.maximum(from_ms[inside], least_ms), to_ms[inside], number[inside]
        wide = to_ms - from_ms > self.window_ms
        self._events += self._spread(np.where(wide, to_ms - 1, from_ms), to_ms, number)
        late = (from_ms // self._slot_ms < self._mark) & ~wide
        if late.any():
            self._add_missing(self._spread(from_ms[late], to_ms[late], number[late]))
        for row in np.flatnonzero(wide).tolist():
            begin = int(from_ms[row]) // self._slot_ms + 1
            self._add_to_ends(begin, int(to_ms[row]) // self._slot_ms + self._window, float(number[row]))

    def found(self) -> tuple[Breach, ...]:
        """Return all breaches of the last day, in the order of time, as far as they are known by now."""
        if NEVER in (self._first, self._mark):
            return ()
        whole = self._of_windows(self._events)
        broken = self._missing > whole * self.bound_ppm / PPM + _NOISE_EVENTS
        ends = np.arange(self._missing.size) + self._first
        broken &= (ends >= self._judged_from + self._window) & (ends <= self._mark)
        self.breached_windows += int(np.count_nonzero(broken & ~self._found))
        self._found |= broken
        return tuple(
            Breach(
                (self._first + at) * self._slot_ms,
                min(ceil(self._missing[at] / whole[at] * PPM), PPM) if whole[at] > 0 else PPM,
                self.bound_ppm,
            )
            for at in np.flatnonzero(broken).tolist()
        )

    def of_window(self, end_ms: int) -> Breach | None:
        """Return the breach of the window that ends there, or in the slot before."""
        slot_end_ms = end_ms // self._slot_ms * self._slot_ms
        return next((each for each in self.found() if each.window_end_ms == slot_end_ms), None)

    def _make_room(self, newest: int, oldest: int) -> None:
        size = self._events.size
        if self._first == NEVER:
            # What is behind the first report may be of hosts that stand still: it is kept, and not judged.
            self._first, self._judged_from = newest - size // 2, newest
            return
        ahead = newest + self._window + 1 - (self._first + size)
        if ahead <= 0:
            return
        dropped = min(max(ahead, size // 16), size)
        for column in (self._events, self._missing, self._found):
            column[: size - dropped] = column[dropped:].copy()
            column[size - dropped :] = 0
        self._first += max(ahead, dropped)

    def _spread(self, from_ms: Instants, to_ms: Instants, number: Rates) -> Rates:
        """Return events by slot, evenly between the instants."""
        first = from_ms // self._slot_ms
        slots = to_ms // self._slot_ms - first + 1
        row = np.repeat(np.arange(first.size), slots)
        step = np.arange(row.size) - np.repeat(np.cumsum(slots) - slots, slots)
        slot = first[row] + step
        begin_ms = np.maximum(slot * self._slot_ms, from_ms[row])
        end_ms = np.minimum((slot + 1) * self._slot_ms, to_ms[row])
        share = np.maximum(end_ms - begin_ms, 0) / (to_ms - from_ms)[row]
        place = slot - self._first
        indexed = (place >= 0) & (place < self._events.size)
        weights = (share * number[row])[indexed]
        counted = np.bincount(place[indexed], weights=weights, minlength=self._events.size)
        return counted.astype(np.float64, copy=False)

    def _add_missing(self, late: Rates) -> None:
        """Add to each closed window what has come in for it since."""
        closed = self._mark - self._first + 1
        if closed > 0:
            self._missing[:closed] += self._of_windows(late)[:closed]

    def _add_to_ends(self, begin: int, end: int, number: float) -> None:
        closed = slice(max(begin - self._first, 0), max(min(end, self._mark + 1) - self._first, 0))
        self._missing[closed] += number

    def _of_windows(self, by_slot: Rates) -> Rates:
        """Return sums over the window that ends at the beginning of each slot."""
        sums = np.concatenate(([0.0], np.cumsum(by_slot)))
        at = np.arange(by_slot.size)
        window: Rates = sums[at] - sums[np.maximum(at - self._window, 0)]
        return window
