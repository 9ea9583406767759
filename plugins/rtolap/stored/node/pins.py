"""Versions that statements have pinned: compaction keeps their files until the statement ends, or for a
bounded time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from time import monotonic

from rtolap.base.errors import PinExpired, RtolapError
from rtolap.protocols.storage.messages import Pin, TabletId, TabletsDone, Unpin
from rtolap.stored.engine.scan import TabletSnapshot
from rtolap.stored.engine.tablet import Tablet

log = logging.getLogger(__name__)

KEEP_S_MAX = 900.0  # a statement that was forgotten keeps files, which take room, for no longer
PINS_MAX = 1_000  # statements at once: each holds a few objects for each of its tablets


@dataclass
class _Kept:
    until_s: float
    snapshots: dict[TabletId, TabletSnapshot]


class Pins:
    """The pins of a node. Thread-safe.

    Args:
        tablet: returns an open tablet. Raises as `TabletReplicas.get` does.
    """

    def __init__(
        self,
        tablet: Callable[[TabletId], Tablet],
        *,
        keep_s_max: float = KEEP_S_MAX,
        pins_max: int = PINS_MAX,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self._tablet, self._now_s = tablet, now_s
        self._keep_s_max, self._pins_max = keep_s_max, pins_max
        self._lock = Lock()
        self._kept: dict[str, _Kept] = {}

    def pin(self, request: Pin) -> TabletsDone:
        """Pin what can be pinned, in addition to what the pin has already; return these tablets."""
        self.expire()
        snapshots: dict[TabletId, TabletSnapshot] = {}
        for tablet, version in request.versions:
            try:
                snapshots[tablet] = self._tablet(tablet).pin(version)
            except RtolapError as error:  # another replica may have it
                log.info("version %d of tablet %s is not pinned: %s", version, tablet, error)
        until_s = self._now_s() + min(request.keep_s, self._keep_s_max)
        with self._lock:
            kept = self._kept.get(request.pin_id)
            has_room = kept is not None or len(self._kept) < self._pins_max
            unused = snapshots
            if has_room:
                kept = self._kept.setdefault(request.pin_id, _Kept(until_s, {}))
                unused = {id: kept.snapshots.pop(id) for id in snapshots if id in kept.snapshots}
                kept.snapshots.update(snapshots)
        for snapshot in unused.values():
            snapshot.close()
        return TabletsDone(tuple(snapshots) if has_room else ())

    def unpin(self, request: Unpin) -> None:
        with self._lock:
            kept = self._kept.pop(request.pin_id, None)
        _close(kept)

    def snapshot(self, pin_id: str, tablet: TabletId) -> TabletSnapshot:
        """Return the version that the pin keeps, pinned once more, for its reader to close. Raises
        PinExpired."""
        self.expire()
        with self._lock:
            kept = self._kept.get(pin_id)
            pinned = None if kept is None else kept.snapshots.get(tablet)
            if pinned is not None:
                return pinned.share()
        raise PinExpired(
            f"tablet {tablet} is no longer pinned for this statement",
            expected=f"a statement that ends within {self._keep_s_max:g} s",
            action="ask again, for less at once",
        )

    def expire(self) -> int:
        """Unpin what has been pinned for too long; return the number of statements."""
        with self._lock:
            late = [pin_id for pin_id, kept in self._kept.items() if kept.until_s <= self._now_s()]
            expired = [self._kept.pop(pin_id) for pin_id in late]
        for kept in expired:
            _close(kept)
        return len(expired)

    def close(self) -> None:
        with self._lock:
            every = list(self._kept.values())
            self._kept.clear()
        for kept in every:
            _close(kept)

    def count(self) -> int:
        """Return the number of statements that have pins."""
        with self._lock:
            return len(self._kept)


def _close(kept: _Kept | None) -> None:
    for snapshot in () if kept is None else kept.snapshots.values():
        snapshot.close()
