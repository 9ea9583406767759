"""When the threads of a cube look for work: steps by their length, and an idle cube less often. Pure."""

from __future__ import annotations

INTERVAL_S_MAX = 0.025
INTERVAL_PER_STEP = 4.0  # steps that are short use at most this fraction of the time
SHORT_INTERVAL_S_MAX = 0.0125  # from one step to the next, while they are short
INTERVAL_PER_LONG_STEP = 1.3  # of those too long for that: more pause costs freshness more than it saves
IDLE_AFTER_S = 5.0
IDLE_FACTOR = 5.0  # a look of the core takes some 0.6 to 1 ms of processor time: docs/performance/idle.md


class StepPace:
    """The core thread says when it has read records; all threads of the cube ask how long to wait."""

    def __init__(self, begun_s: float = 0.0) -> None:
        self._next_s = float("-inf")
        self._read_s = begun_s

    def wait_s(self, now_s: float) -> float:
        """Return how long the next step has to wait; 0 where it may begin."""
        return max(0.0, self._next_s - now_s)

    def stepped(self, begun_s: float, ended_s: float) -> None:
        """Schedule the next step after one that took in records. Steps without records need no call."""
        self._read_s = ended_s
        took_s = ended_s - begun_s
        interval_s = min(SHORT_INTERVAL_S_MAX, INTERVAL_PER_STEP * took_s)
        self._next_s = begun_s + min(INTERVAL_S_MAX, max(interval_s, INTERVAL_PER_LONG_STEP * took_s))

    def every_s(self, usual_s: float, now_s: float) -> float:
        """Return how long a thread waits before it looks again: longer where no record has come for a while.

        Records are not among what waits: a poll returns as soon as one arrives.
        """
        return usual_s * IDLE_FACTOR if now_s - self._read_s > IDLE_AFTER_S else usual_s
