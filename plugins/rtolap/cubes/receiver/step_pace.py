"""How often a core steps: at once on a quiet stream, seldom enough on a busy one.

A step has a fixed cost, whatever it takes in. The pause after a step grows with the time that the step took,
so that steps under load take in more each and use a bounded share of the processor for what is fixed; it is
bounded, so that nothing waits long to be seen. A step that took longer than the bound is followed at once.
"""

from __future__ import annotations

INTERVAL_S_MAX = 0.025
INTERVAL_PER_STEP = 4.0  # steps that are short use at most this fraction of the time


class StepPace:
    def __init__(self) -> None:
        self._next_s = float("-inf")

    def wait_s(self, now_s: float) -> float:
        """How long the next step has to wait; 0 where it may begin."""
        return max(0.0, self._next_s - now_s)

    def stepped(self, begun_s: float, ended_s: float) -> None:
        """A step has taken in records. One that found none need not be told."""
        self._next_s = begun_s + min(INTERVAL_S_MAX, INTERVAL_PER_STEP * (ended_s - begun_s))
