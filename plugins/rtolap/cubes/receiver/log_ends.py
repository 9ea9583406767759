"""The ends of the logs: they tell idle from late, and a replay from the present; and whether the topic is
still the same."""

from __future__ import annotations

from collections.abc import Iterable

from rtolap.base.clock import Clock
from rtolap.base.errors import RtolapError
from rtolap.cubes.receiver.partition_progress import Progress
from rtolap.kafka.interfaces import StreamConsumer
from rtolap.kafka.topic_identity import TopicIdentity

LOG_END_EVERY_S = 1.0
_TIMEOUT_S = 1.0


class LogEnds:
    """`beside`: another thread calls `poll` every LOG_END_EVERY_S, beside the core."""

    def __init__(
        self,
        consumer: StreamConsumer,
        topic: TopicIdentity,
        progress: Progress,
        clock: Clock,
        *,
        beside: bool,
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._progress = progress
        self._clock = clock
        self._beside = beside
        self._looked_at_s = float("-inf")

    def poll_if_due(self, partitions: Iterable[int]) -> str | None:
        """As `poll`, at most every LOG_END_EVERY_S; nothing when another thread polls."""
        now_s = self._clock.monotonic_s()
        if self._beside or now_s - self._looked_at_s < LOG_END_EVERY_S:
            return None
        self._looked_at_s = now_s
        return self.poll(partitions)

    def poll(self, partitions: Iterable[int]) -> str | None:
        """Look up the ends and return the error, if any. Calls Kafka: tens of milliseconds in which a core
        that calls it does not consume."""
        asked_s = self._clock.monotonic_s()
        try:
            ends = {p: self._consumer.log_range(p, _TIMEOUT_S).end for p in partitions}
            self._topic.confirm(_TIMEOUT_S)
            self._progress.log_ends = ends
        except RtolapError as error:
            self._progress.log_ends = {}
            return str(error)
        self._progress.log_ends_asked_s = asked_s
        return None
