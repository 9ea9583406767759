"""Runs of a loader whose brokers start again and again, and do not know its topic at first."""

from __future__ import annotations

from collections.abc import Mapping

from rtolap.base.errors import NotFound
from rtolap.kafka.interfaces import BATCH_BYTES_MAX, Batch, EpochEnd, LogRange, StreamConsumer
from rtolap.model.loader import Loader
from rtolap.stored.loader.states import TOPIC_MISSING_S

from tests.support.loader.loader_runs import Run
from tests.support.twins.kafka_consumer import MemoryConsumer


class YoungBroker(MemoryConsumer):
    """A consumer at brokers that have just started, each in its turn: they do not know the topic for a while,
    which is shorter than after which it is gone."""

    def __init__(self, run: Run, topic: str) -> None:
        super().__init__(run.broker, topic)
        self._run = run
        self._unknown_until_ms = 0

    def poll(self, records_max: int, timeout_s: float, *, bytes_max: int = BATCH_BYTES_MAX) -> Batch:
        self._ask()
        return super().poll(records_max, timeout_s, bytes_max=bytes_max)

    def partitions(self, timeout_s: float = 5.0) -> list[int]:
        self._ask()
        return super().partitions(timeout_s)

    def topic_id(self, timeout_s: float = 5.0) -> str:
        self._ask()
        return super().topic_id(timeout_s)

    def log_range(self, partition: int, timeout_s: float = 5.0) -> LogRange:
        self._ask()
        return super().log_range(partition, timeout_s)

    def epoch_ends(self, epochs: Mapping[int, int | None], timeout_s: float = 5.0) -> dict[int, EpochEnd]:
        self._ask()
        return super().epoch_ends(epochs, timeout_s)

    def _ask(self) -> None:
        """Raise NotFound while the broker does not know the topic. Another one is asked once this one has
        answered."""
        now_ms = self._run.world.clock.now_ms()
        if now_ms >= self._unknown_until_ms > 0:
            self._unknown_until_ms = 0
            return
        if not self._unknown_until_ms and self._run.chance("topic unknown", often=2.0):
            self._unknown_until_ms = now_ms + self._run.random.randrange(1, int(TOPIC_MISSING_S * 1000))
        if self._unknown_until_ms:
            raise NotFound(f"there is no topic {self.topic}")


class YoungBrokersRun(Run):
    """Brokers start again and again, and do not know the topic at first."""

    def _open_consumer(self, loader: Loader) -> StreamConsumer:
        return YoungBroker(self, loader.topic)
