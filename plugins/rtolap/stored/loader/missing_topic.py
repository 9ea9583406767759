"""Tells a topic that is gone from one that a broker does not know yet."""

from __future__ import annotations

from rtolap.base.clock import Clock
from rtolap.base.errors import NotFound, Unavailable
from rtolap.stored.loader.states import StopCause, Stopped

TOPIC_MISSING_S = 5.0  # a broker that has just started may not know all topics yet


class MissingTopic:
    """What the answer "there is no such topic" means for a loader that has read it; of one thread."""

    def __init__(self, topic: str, clock: Clock) -> None:
        self._topic = topic
        self._clock = clock
        self._since_s: float | None = None

    def meaning(self, error: NotFound) -> Stopped | Unavailable:
        """Return Unavailable: ask again; Stopped once no broker has known the topic for TOPIC_MISSING_S."""
        now_s = self._clock.monotonic_s()
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s >= TOPIC_MISSING_S:
            return Stopped(StopCause.TOPIC_GONE, str(error))
        return Unavailable(f"topic {self._topic} is missing: waiting for it")

    def found(self) -> None:
        self._since_s = None
