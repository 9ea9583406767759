"""Refused records go to the table's dead-letter topic, with where they came from and why. None is lost.

    send ──▶ waiting ──acknowledged──▶ gone
                │  ▲
         refused│  │ settle (retry_s later, and with every checkpoint)
                ▼  │
              refused: the consumer pauses and says why; no checkpoint passes the records

A crash forgets the box; the records lie beyond the last checkpoint then, and are read and refused again.
Both receivers of a replica set produce them, so that none is lost with one of them; the key
(`topic/partition/offset`) makes the copies one for a reader or a compacted topic. The value is the record's
own, whole up to VALUE_BYTES_MAX; of a larger one the beginning, with its size in the header `value_bytes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from rtolap.base.errors import NotFound, Refused, RtolapError, Unavailable
from rtolap.events.rejects import Rejects, dead_letter_records
from rtolap.kafka.interfaces import Batch, OutRecord, StreamProducer

PENDING_BYTES_MAX = 32 << 20  # above it the consumer pauses until Kafka has taken some
_FLUSH_S = 0.1


class DeadLetterWriter:
    """The dead letters of one cube until Kafka acknowledges them. They are used by the core thread, and
    reported by any.

    `create_topic` is tried when the topic turns out to be missing.
    """

    def __init__(
        self,
        producer: StreamProducer,
        topic: str,
        dead_letter_topic: str,
        create_topic: Callable[[], object] | None = None,
    ) -> None:
        self._producer = producer
        self._source = topic
        self._topic = dead_letter_topic
        self._create_topic = create_topic
        self._waiting: dict[bytes, OutRecord] = {}
        self._refused: dict[bytes, tuple[OutRecord, RtolapError]] = {}
        self._lock = Lock()

    def send(self, batch: Batch, rejects: Rejects) -> None:
        """Queue the dead letters. Letters that cannot be queued count as refused and are tried again."""
        self._queue(dead_letter_records(self._source, batch, rejects))

    def poll(self) -> None:
        """Process the deliveries and refusals that Kafka has reported meanwhile."""
        if self._waiting:
            self._producer.poll()

    @property
    def delivery_error(self) -> RtolapError | None:
        """Return why dead letters cannot be delivered, or that too many are pending; None otherwise."""
        with self._lock:
            refused, waiting = list(self._refused.values()), list(self._waiting.values())
        if refused:
            first = refused[0][1]
            kind = NotFound if isinstance(first, NotFound) else Refused
            return kind(
                f"{len(refused)} refused records cannot be kept in {self._topic}",
                found=str(first),
                action="mend the topic (does it exist, is its max.message.bytes large enough, may the "
                "receiver write?); it is tried again",
            )
        if sum(len(record.value or b"") for record in waiting) > PENDING_BYTES_MAX:
            return self._unacknowledged(len(waiting))
        return None

    def settle(self, timeout_s: float) -> None:
        """Return when Kafka holds every dead letter.

        Raises Refused, NotFound or Unavailable otherwise; no letter is lost then. Refused letters are sent
        again together, and in halves where that is refused: a record that is too large fails the others of
        its request.
        """
        slices = max(1, round(timeout_s / _FLUSH_S))
        slices = self._await(slices)
        groups = self._taken_back()
        while groups and slices > 0:
            group = groups.pop()
            self._queue(group)
            slices = self._await(slices - 1)
            again = [record for record in group if isinstance(self._refusal(record), Refused)]
            if len(group) > 1 and again:
                middle = len(again) // 2
                groups += [half for half in (again[middle:], again[:middle]) if half]
        if (delivery_error := self.delivery_error) is not None:
            raise delivery_error
        if self._waiting:
            raise self._unacknowledged(len(self._waiting))

    def _taken_back(self) -> list[list[OutRecord]]:
        """Return the refused records to be sent again, as one group; create the topic first where it is
        missing."""
        with self._lock:
            refused = list(self._refused.values())
        if self._create_topic is not None and any(isinstance(error, NotFound) for _, error in refused):
            self._create_topic()
        return [[record for record, _ in refused]] if refused else []

    def _queue(self, records: Sequence[OutRecord]) -> None:
        with self._lock:
            for record in records:
                self._waiting[_key(record)] = record
                self._refused.pop(_key(record), None)
        try:
            self._producer.produce(self._topic, records, delivered=self._delivered)
        except RtolapError as error:
            for record in records:  # some may be on their way all the same: twice under one key is once
                self._delivered(record, error)

    def _delivered(self, record: OutRecord, error: RtolapError | None) -> None:
        key = _key(record)
        with self._lock:
            waited = self._waiting.pop(key, None)
            if error is None:
                self._refused.pop(key, None)
            elif waited is not None:
                self._refused[key] = record, error

    def _refusal(self, record: OutRecord) -> RtolapError | None:
        with self._lock:
            return self._refused.get(_key(record), (record, None))[1]

    def _await(self, slices: int) -> int:
        """Flush until no letter of ours is pending. The producer is shared: others may wait longer."""
        while self._waiting and slices > 0:
            slices -= 1
            try:
                self._producer.flush(_FLUSH_S)
            except Unavailable:
                continue  # it says that something waits still: looked at above
        return slices

    def _unacknowledged(self, count: int) -> Unavailable:
        return Unavailable(
            f"{count} refused records wait to be kept in {self._topic}",
            found="Kafka has not acknowledged them",
            action="it is tried again",
        )


def _key(record: OutRecord) -> bytes:
    assert record.key is not None, "every letter has a key"
    return record.key
