"""Sending records at a rate, with progress, through one idempotent producer.

Idempotence keeps each partition in sending order and without duplicates, so the k-th record of a partition
has offset `first + k`: a recount of a prefix rests on that, and `finish` checks it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from rtolap.base.errors import Refused, Unavailable
from rtolap.demo.flights import ReplayBatch
from rtolap.kafka.interfaces import OutRecord, StreamProducer, TopicAdmin

_FLUSH_TIMEOUT_S = 60.0
_LEADER_TIMEOUT_S = 15.0
_SLICE_RECORDS = 500  # how finely a rate is kept

Progress = Callable[[int], None]


class Sender:
    """Sends to one topic. `sent` counts by partition; `first` is where each partition began."""

    def __init__(self, producer: StreamProducer, admin: TopicAdmin, topic: str) -> None:
        self.topic = topic
        self._producer = producer
        self._admin = admin
        self.first = self._latest()
        self.sent: dict[int, int] = dict.fromkeys(self.first, 0)

    def send(
        self, batches: Iterable[ReplayBatch], *, rate: float | None = None, progress: Progress | None = None
    ) -> int:
        """Send records, and return their number.

        `rate` is in records per second; None is as fast as possible.
        """
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
        self._producer.flush(_FLUSH_TIMEOUT_S)
        expected = {partition: self.first[partition] + sent for partition, sent in self.sent.items()}
        offsets = self._latest()
        if offsets != expected:
            raise Refused(
                f"somebody else writes to {self.topic}, so offsets are not known",
                expected=expected,
                found=offsets,
                action="produce into a topic of your own",
            )
        return expected

    def _latest(self) -> dict[int, int]:
        """Return the ends of the log. The partitions of a topic that was just created take a moment to get a
        leader."""
        retrying = Retrying(
            retry=retry_if_exception_type((Refused, Unavailable)),
            stop=stop_after_delay(_LEADER_TIMEOUT_S),
            wait=wait_fixed(0.2),
            reraise=True,
        )
        return retrying(self._admin.offsets, self.topic, "latest")

    def _send_slice(self, values: list[bytes | None], partitions: list[int]) -> int:
        records = [OutRecord(v, partition=p) for v, p in zip(values, partitions, strict=True)]
        self._producer.produce(self.topic, records)
        for partition in partitions:
            self.sent[partition] += 1
        return len(values)


def file_batches(path: Path, partitions: list[int], limit: int | None = None) -> Iterator[ReplayBatch]:
    """Yield the lines of a file as records, spread over the partitions in turn; empty lines are left out."""
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
