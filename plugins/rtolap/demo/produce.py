"""Sending records at a rate, with progress, through one idempotent producer.

Idempotence keeps each partition in sending order and without duplicates, so the k-th record of a partition
has offset `first + k`: a recount of a prefix rests on that, and `finish` checks it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from confluent_kafka import Consumer as OffsetReader
from confluent_kafka import KafkaException, Producer, TopicPartition

from rtolap.base.errors import NotFound, Refused, Unavailable
from rtolap.demo.flights import ReplayBatch

QUEUE_RECORDS_MAX = 100_000  # the client's own buffer; `produce` waits when it is full
_FLUSH_TIMEOUT_S = 60.0
_METADATA_TIMEOUT_S = 10.0
_SLICE_RECORDS = 500  # how finely a rate is kept

Progress = Callable[[int], None]


class Sender:
    """Sends to one topic. `sent` counts by partition; `first` is where each partition began."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self._bootstrap = bootstrap
        self._errors: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 5,
                "queue.buffering.max.messages": QUEUE_RECORDS_MAX,
                "delivery.timeout.ms": 60_000,
            }
        )
        self.first = self.end_offsets()
        self.sent: dict[int, int] = dict.fromkeys(self.first, 0)

    def send(
        self, batches: Iterable[ReplayBatch], *, rate: float | None = None, progress: Progress | None = None
    ) -> int:
        """Records sent. `rate` is records per second; None is as fast as it goes."""
        started = time.monotonic()
        total = 0
        for batch in batches:
            for at in range(0, len(batch.values), _SLICE_RECORDS):
                total += self._send_slice(
                    batch.values[at : at + _SLICE_RECORDS], batch.partitions[at : at + _SLICE_RECORDS]
                )
                if progress is not None:
                    progress(total)
                if rate is not None and (ahead := total / rate - (time.monotonic() - started)) > 0:
                    time.sleep(ahead)
        return total

    def finish(self) -> dict[int, int]:
        """Wait until everything is stored. Partition → next offset, checked against the broker."""
        left = self._producer.flush(_FLUSH_TIMEOUT_S)
        if left or self._errors:
            raise Unavailable(
                f"{left + len(self._errors)} records were not stored in {self.topic}",
                found="; ".join(self._errors[:3]) or "no acknowledgement",
            )
        expected = {partition: self.first[partition] + sent for partition, sent in self.sent.items()}
        found = self.end_offsets()
        if found != expected:
            raise Refused(
                f"somebody else writes to {self.topic}, so offsets are not known",
                expected=expected,
                found=found,
                action="produce into a topic of your own",
            )
        return expected

    def end_offsets(self) -> dict[int, int]:
        """Partition → next offset, by the broker. Raises NotFound or Unavailable."""
        settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "rtolap-produce",
            "enable.auto.commit": False,
        }
        reader = OffsetReader(settings)
        try:
            metadata = reader.list_topics(self.topic, timeout=_METADATA_TIMEOUT_S).topics[self.topic]
            if metadata.error is not None:
                raise NotFound(f"topic {self.topic} does not exist", found=str(metadata.error))
            return {
                partition: reader.get_watermark_offsets(
                    TopicPartition(self.topic, partition), timeout=_METADATA_TIMEOUT_S
                )[1]
                for partition in sorted(metadata.partitions)
            }
        except KafkaException as error:
            raise Unavailable(f"Kafka at {self._bootstrap} does not answer", found=str(error)) from error
        finally:
            reader.close()

    def _send_slice(self, values: list[bytes | None], partitions: list[int]) -> int:
        for value, partition in zip(values, partitions, strict=True):
            while True:
                try:
                    self._producer.produce(
                        self.topic, value=value, partition=partition, on_delivery=self._delivered
                    )
                    break
                except BufferError:  # the queue is full: let deliveries happen
                    self._producer.poll(0.1)
            self.sent[partition] += 1
        self._producer.poll(0)
        return len(values)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._errors.append(str(error))


def file_batches(path: Path, partitions: list[int], limit: int | None = None) -> Iterator[ReplayBatch]:
    """Lines of a file as records, spread over the partitions in turn; empty lines are left out."""
    values: list[bytes | None] = []
    total = 0
    with path.open("rb") as lines:
        for line in lines:
            if limit is not None and total >= limit:
                break
            if stripped := line.rstrip(b"\r\n"):
                values.append(stripped)
                total += 1
            if len(values) == _SLICE_RECORDS:
                yield _in_turn(values, partitions, total - len(values))
                values = []
    if values:
        yield _in_turn(values, partitions, total - len(values))


def _in_turn(values: list[bytes | None], partitions: list[int], start: int) -> ReplayBatch:
    return ReplayBatch(values, [partitions[(start + i) % len(partitions)] for i in range(len(values))])
