"""Decides if queued segments are READY again, and which of them cannot become so. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rtolap.protocols.coordinator.messages import SegmentInfo

READY = "READY"
PURGED = "PURGED"
_NAMED_MAX = 5
# Longer than the queue needs to signal again: a build had its retries, and those of another run.
FAILED_AFTER_S = 900.0


class Rebuilt(NamedTuple):
    """The outcome of rebuilds. `ready` has the names of those that are READY, `failed` the reason of each
    that will not be, `waiting` the state of each other one."""

    ready: tuple[str, ...]
    failed: Mapping[str, str]
    waiting: Mapping[str, str]

    @property
    def text(self) -> str:
        parts = [f"{len(self.ready)} segments are READY"]
        counts = Counter(self.waiting.values())
        if counts:
            states = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
            parts.append(f"{states} wait to be built: {_some(self.waiting)}")
            parts.append("they are built while rtolap_segment_build is unpaused")
        parts += [f"{name}: {reason}" for name, reason in self.failed.items()]
        return "; ".join(parts)


class RebuildWatch:
    """Looks at the same segments again and again. A segment has failed when it is purged, or when it had a
    failed build `failed_after_s` ago, is still not READY, and its newest attempt has failed, too."""

    def __init__(self, segments: Sequence[str], failed_after_s: float = FAILED_AFTER_S) -> None:
        self._segments = tuple(segments)
        self._failed_after_s = failed_after_s
        self._failing_since_s: dict[str, float] = {}

    def look(self, infos: Iterable[SegmentInfo], now_s: float) -> Rebuilt:
        known = {info.segment: info for info in infos}
        ready, failed, waiting = [], {}, {}
        for name in self._segments:
            info = known.get(name)
            if info is None:
                failed[name] = "there is no such segment any more"
            elif info.state == READY:
                ready.append(name)
            elif info.state == PURGED:
                failed[name] = "it was purged meanwhile"
            elif self._has_failed(info, now_s):
                failed[name] = f"its builds fail: {info.build.error if info.build else ''}"
            else:
                waiting[name] = info.state
        return Rebuilt(tuple(ready), failed, waiting)

    def _has_failed(self, info: SegmentInfo, now_s: float) -> bool:
        if info.build is None or info.build.error is None:
            return False
        return now_s - self._failing_since_s.setdefault(info.segment, now_s) >= self._failed_after_s


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - _NAMED_MAX} more" if len(listed) > _NAMED_MAX else ""
    return ", ".join(listed[:_NAMED_MAX]) + more
