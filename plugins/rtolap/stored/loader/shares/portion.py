"""A share of a topic, as a loader's run sees it: a consumer of its partitions, and bounds of its batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from rtolap.kafka.interfaces import BATCH_BYTES_MAX, Batch, EpochEnd, LogRange, StreamConsumer
from rtolap.model.loader import Loader, LoaderBatch, LoaderProcesses
from rtolap.model.offsets import Offsets
from rtolap.stored.loader.job import JobConfig, Portion

_ROWS_MIN, _BYTES_MIN = 1, 1 << 10


def shares_of(sharing: LoaderProcesses, partitions: int) -> int:
    """Return into how many shares a topic of so many partitions is divided."""
    wanted = sharing.shares if sharing.shares is not None else 2 * sharing.max
    return max(1, min(wanted, partitions))


def configured_for_share(shares: int) -> Callable[[JobConfig], JobConfig]:
    """Return the change that makes a job's configuration that of one of its shares.

    A process may have all shares that the smallest number of processes leaves it. Together they hold no more
    records than the process of an undivided job.
    """

    def configured(config: JobConfig) -> JobConfig:
        return msgspec.structs.replace(config, loader=_of_share(config.loader, shares))

    return configured


def _of_share(loader: Loader, shares: int) -> Loader:
    sharing = loader.sharing or LoaderProcesses()
    at_once = max(1, -(-shares // sharing.min))
    batch, parallel = loader.batch, max(1, loader.parallel // at_once)
    factor = at_once * (parallel + 2) / (loader.parallel + 2)
    return msgspec.structs.replace(
        loader,
        parallel=parallel,
        batch=LoaderBatch(
            rows=max(_ROWS_MIN, int(batch.rows / factor)),
            bytes=max(_BYTES_MIN, int(batch.bytes / factor)),
            interval_ms=batch.interval_ms,
        ),
    )


class PortionConsumer:
    """A consumer to which the topic has only the partitions of a share."""

    def __init__(self, consumer: StreamConsumer, portion: Portion) -> None:
        self.topic = consumer.topic
        self._consumer = consumer
        self._portion = portion

    def assign(self, offsets: Offsets) -> None:
        self._consumer.assign(offsets)

    def add_partitions(self, offsets: Offsets) -> None:
        self._consumer.add_partitions(offsets)

    def remove_partitions(self, partitions: Iterable[int]) -> None:
        self._consumer.remove_partitions(partitions)

    def poll(self, records_max: int, timeout_s: float, *, bytes_max: int = BATCH_BYTES_MAX) -> Batch:
        return self._consumer.poll(records_max, timeout_s, bytes_max=bytes_max)

    def position(self) -> Offsets:
        return self._consumer.position()

    def known_ends(self) -> Offsets:
        return self._consumer.known_ends()

    def log_range(self, partition: int, timeout_s: float = 5.0) -> LogRange:
        return self._consumer.log_range(partition, timeout_s)

    def partitions(self, timeout_s: float = 5.0) -> list[int]:
        return [each for each in self._consumer.partitions(timeout_s) if self._portion.has_partition(each)]

    def topic_id(self, timeout_s: float = 5.0) -> str:
        return self._consumer.topic_id(timeout_s)

    def epoch_ends(self, epochs: Mapping[int, int | None], timeout_s: float = 5.0) -> dict[int, EpochEnd]:
        return self._consumer.epoch_ends(epochs, timeout_s)

    def pause(self, partitions: Iterable[int] | None = None) -> None:
        self._consumer.pause(partitions)

    def resume(self, partitions: Iterable[int] | None = None) -> None:
        self._consumer.resume(partitions)

    @property
    def broker_error(self) -> str | None:
        return self._consumer.broker_error

    def close(self) -> None:
        self._consumer.close()
