"""Records of several topics written as one: all of them become readable, or none does.

A transactional id belongs to the producer that began with it last. `begin` ends the transaction that its
predecessor left open and shuts the predecessor out for good, however late it wakes up. This makes a leader's
writes safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from rtolap.base.errors import CommitUnknown, NotLeader, RtolapError, Unavailable
from rtolap.kafka.clusters import KafkaCluster
from rtolap.kafka.errors import close_client, plain, translated

RECORD_BYTES_MAX = 16 << 20
TIMEOUT_MS = 60_000  # the broker ends a transaction that is open for longer
_POLL_S = 0.05
_SHUT_OUT = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # what follows from another error
# after a record that the broker refused; the abort that follows mends it
_BROKEN_SEQUENCE = (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.UNKNOWN_PRODUCER_ID)

Headers = list[tuple[str, bytes]]


class OutColumns(NamedTuple):
    """Records of one topic, by columns of one length. Without `partition` the key chooses it; `headers` are
    those of each record."""

    topic: str
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers] | None = None
    partition: int | None = None


class TransactionalProducer(Protocol):
    """A producer of transactions. Not thread-safe. Close it after CommitUnknown and NotLeader."""

    def begin(self, timeout_s: float) -> None:
        """Begin, once, before anything is sent: shut out the producer that had the id before. Its last
        transaction is committed or aborted when this returns. Unavailable; Forbidden."""

    def send(self, columns: Sequence[OutColumns], timeout_s: float) -> None:
        """Return when all records are committed, in their order within each partition.

        Nothing is written where it raises Unavailable (try again), NotFound, Refused or Forbidden (mend it);
        TooLarge: one of the records is.
        CommitUnknown: only `begin` of another producer with the same id settles it, and reading tells what
        became of it. NotLeader: another one has begun with the id; nothing is written.
        """

    def close(self) -> None: ...


class KafkaTransactionalProducer:
    """The TransactionalProducer of a real cluster."""

    def __init__(
        self, cluster: KafkaCluster | str, transactional_id: str, *, client_id: str = "rtolap"
    ) -> None:
        self._cluster = KafkaCluster.of(cluster)
        self._id = transactional_id
        self._failed: list[KafkaError] = []
        self._producer = self._cluster.open(
            Producer,
            {
                "client.id": client_id,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TIMEOUT_MS,
                "message.timeout.ms": TIMEOUT_MS,
                "linger.ms": 2,
                "compression.type": "lz4",
                "message.max.bytes": RECORD_BYTES_MAX,
                "queue.buffering.max.messages": 400_000,
                "queue.buffering.max.kbytes": 131_072,
                "allow.auto.create.topics": False,
                "topic.metadata.propagation.max.ms": 5_000,
                "on_delivery": self._on_delivery,
            },
        )

    def begin(self, timeout_s: float) -> None:
        try:
            _until_done(self._producer.init_transactions, time.monotonic() + timeout_s)
        except KafkaException as error:
            raise self._translated(error) from error

    def send(self, columns: Sequence[OutColumns], timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        try:
            self._send(columns, deadline_s)
        except _BrokenSequence:
            self._send(columns, deadline_s)

    def _send(self, columns: Sequence[OutColumns], deadline_s: float) -> None:
        try:
            plain(self._producer.poll, 0)  # what the last one has left
            self._failed.clear()
            plain(self._producer.begin_transaction)
        except KafkaException as error:
            raise self._translated(error) from error
        try:
            for each in columns:
                self._queue(each, deadline_s)
            waiting = plain(self._producer.flush, max(0.1, deadline_s - time.monotonic()))
        except (KafkaException, RtolapError) as error:
            raise self._aborted(error) from error
        if self._failed:
            raise self._aborted(KafkaException(self._failed[0]))
        if waiting:
            raise self._aborted(Unavailable(f"Kafka has not taken {waiting} records in time", action="retry"))
        self._commit(deadline_s)

    def close(self) -> None:
        """Give up the open transaction; the next producer that begins with the id ends it at the broker."""
        producer = self._producer
        close_client(f"the producer of {self._id}", producer.purge, lambda: producer.flush(0.0))

    def _queue(self, columns: OutColumns, deadline_s: float) -> None:
        topic, produce = columns.topic, self._producer.produce
        options: dict[str, Any] = {} if columns.partition is None else {"partition": columns.partition}
        headers = columns.headers
        for place, (key, value) in enumerate(zip(columns.keys, columns.values, strict=True)):
            if headers is not None:
                options["headers"] = headers[place]
            while True:
                try:
                    produce(topic, value=value, key=key, **options)
                    break
                except BufferError as error:
                    if time.monotonic() > deadline_s:
                        raise Unavailable("the producer's queue stayed full", found=topic) from error
                    plain(self._producer.poll, _POLL_S)

    def _commit(self, deadline_s: float) -> None:
        try:
            _until_done(self._producer.commit_transaction, deadline_s)
        except KafkaException as error:
            reason = error.args[0]
            if reason.txn_requires_abort():
                raise self._aborted(error) from error
            if reason.code() in _SHUT_OUT:
                raise self._translated(error) from error
            raise self._unknown(reason) from error

    def _aborted(self, error: KafkaException | RtolapError) -> RtolapError:
        """Abort; return what to raise."""
        try:
            _until_done(self._producer.abort_transaction, time.monotonic() + TIMEOUT_MS / 1000)
        except KafkaException as abort_error:
            reason = abort_error.args[0]
            return self._translated(abort_error) if reason.code() in _SHUT_OUT else self._unknown(reason)
        return self._translated(error)

    def _translated(self, error: KafkaException | RtolapError) -> RtolapError:
        if isinstance(error, RtolapError):
            return error
        reason = error.args[0]
        if reason.code() in _SHUT_OUT:
            return NotLeader(f"another process writes under {self._id} now: {reason.str()}")
        if reason.fatal():
            return self._unknown(reason)
        if reason.code() in _BROKEN_SEQUENCE:
            return _BrokenSequence(f"the records of {self._id} are out of sequence", action="retry")
        return translated("write to", f"the topics of {self._id}", error, self._cluster)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and error.code() not in _PURGED:
            self._failed.append(error)

    def _unknown(self, reason: KafkaError) -> CommitUnknown:
        return CommitUnknown(
            f"the outcome of a transaction of {self._id} is not known",
            found=self._cluster.redacted(reason.str()),
            action="begin again, and read what is there",
        )


def _until_done(call: Callable[[float], None], deadline_s: float) -> None:
    """Call with the time that is left, again while the error may pass and there is time. The last
    KafkaException goes on."""
    while True:
        try:
            plain(call, max(0.1, deadline_s - time.monotonic()))
            return
        except KafkaException as error:
            reason = error.args[0]
            if reason.txn_requires_abort() or not reason.retriable() or time.monotonic() >= deadline_s:
                raise


class _BrokenSequence(Unavailable):
    code = "broken_sequence"
