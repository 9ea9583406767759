"""The consume role: what is polled becomes batches, each recorded before anybody may send it.

    1. poll until the batch is full or its time is over
    2. seal: the range ends at the consumer's position in every partition
    3. confirm the topic: its id, requested now, is the one in which the records before count
    4. record it                    crash before: the range is read and sealed again, perhaps elsewhere
    5. hand it to the send role     crash before: recovery finds a record that was never sent

Until step 4 is known to stand nothing more is polled: a record whose commit is in doubt is read back.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from rtolap.base.clock import Clock
from rtolap.base.errors import CommitConflict, NotFound, Unavailable
from rtolap.kafka.interfaces import (
    Batch,
    LogTruncated,
    OffsetsGone,
    StreamConsumer,
    TopicLog,
    TopicRecreated,
)
from rtolap.kafka.topic_identity import TopicIdentity
from rtolap.kafka.truncation import TruncationCheck
from rtolap.model.leader_epochs import PartitionEpochs, continued
from rtolap.model.loader import Loader
from rtolap.model.offsets import Offsets
from rtolap.stored.loader.cut_batches import first_beyond, take_back
from rtolap.stored.loader.job import Ownership, Portion
from rtolap.stored.loader.records.content import Content, content_of
from rtolap.stored.loader.states import (
    RECREATED_ACTION,
    TRUNCATED_ACTION,
    MissingTopic,
    StopCause,
    Stopped,
    recreated,
    truncated,
)
from rtolap.stored.loader.window import Pending, Window
from rtolap.stored.metastore.offsets import OffsetsRecord, OffsetsRecords

PARTITIONS_CHECK_S = 10.0


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Sealed:
    start: Offsets
    end: Offsets
    content: Content


class BatchSource:
    """Reads a portion of a topic and cuts it into batches, for one thread.

    Args:
        label: returns the label of a batch by its number.
        positions: the offset behind the last record, of all partitions that were known then.
        topic_id: the topic of `positions`; None for the topic that exists.
        epochs: the leader epochs of what was read up to `positions`.
    """

    def __init__(
        self,
        loader: Loader,
        label: Callable[[int], str],
        consumer: StreamConsumer,
        records: OffsetsRecords,
        ownership: Ownership,
        window: Window,
        clock: Clock,
        portion: Portion,
        *,
        positions: Offsets,
        next_sequence: int,
        topic_id: str | None,
        epochs: PartitionEpochs,
    ) -> None:
        self._loader = loader
        self._label = label
        self._consumer = consumer
        self._records = records
        self._ownership = ownership
        self._window = window
        self._clock = clock
        self._portion = portion
        self._start = dict(positions)
        self._sequence = next_sequence
        self._buffered: list[Batch] = []
        self._buffered_rows = self._buffered_bytes = 0
        self._first_s: float | None = None  # when the batch that is being made began
        self._sealed: _Sealed | None = None
        self._next_check_s = clock.monotonic_s()
        self._missing = MissingTopic()
        self._epochs = dict(epochs)
        self._log = TruncationCheck(consumer.topic, consumer.epoch_ends, action=TRUNCATED_ACTION)
        self._identity = TopicIdentity(
            consumer.topic,
            self._topic_id,
            action=RECREATED_ACTION,
            known=topic_id,
            check_log=self._compare_with_log,
        )
        consumer.assign(dict(positions))

    @property
    def next_label(self) -> str:
        return self._label(self._sequence)

    def step(self, timeout_s: float) -> bool:
        """Do one step, waiting no longer than `timeout_s`. Return True if anything was done.

        Raises Stopped and NotLeader; Unavailable or CommitUnknown, after which the same step is due again.
        """
        try:
            return self._step(timeout_s)
        except LogTruncated as error:
            self._settle_cut(error)
            return True

    def _step(self, timeout_s: float) -> bool:
        if self._sealed is not None:
            return self._hand_over(self._sealed, timeout_s)
        self._look_for_partitions()
        self._poll(min(timeout_s, self._left_s()))
        if self._is_due():
            end = self._consumer.position()
            self._sealed = _Sealed(dict(self._start), end, content_of(self._buffered))
            self._buffered, self._buffered_rows, self._buffered_bytes, self._first_s = [], 0, 0, None
            return self._hand_over(self._sealed, 0.0)
        return self._first_s is not None

    def partitions(self) -> list[int]:
        """Return the partitions that there are now. Raises NotFound, and Unavailable."""
        return self._portion.partitions(self._consumer)

    def log(self) -> TopicLog | None:
        """Return the log as it is now; None where the broker does not give it. For any thread."""
        return self._portion.log(self._consumer)

    def log_ends(self) -> Offsets | None:
        """Return the ends of the topic that is loaded; None too where another one is there."""
        log = self.log()
        if log is None or (log.topic_id and self._identity.known not in (None, log.topic_id)):
            return None
        return log.ends

    def close(self) -> None:
        self._consumer.close()

    def _poll(self, timeout_s: float) -> None:
        batch = self._loader.batch
        try:
            polled = self._consumer.poll(
                batch.rows - self._buffered_rows, timeout_s, bytes_max=batch.bytes - self._buffered_bytes
            )
        except OffsetsGone as error:
            self._confirm_topic()
            if error.start <= error.position <= error.end:  # the log has what was read, the client doubted it
                self._consumer.assign(self._consumer.position())
                return
            cause = StopCause.OFFSETS_GONE if error.position < error.start else StopCause.OFFSETS_BEYOND
            raise Stopped(
                cause,
                f"{error.topic} partition {error.partition} cannot be read on",
                expected=f"offset {error.position}",
                found=f"a log from {error.start} to {error.end}",
                action="`rtolap loader reset --go-on` goes on from what it holds; what is between is lost"
                if cause is StopCause.OFFSETS_GONE
                else "`rtolap loader reset` loads the new topic",
            ) from error
        except NotFound as error:
            raise self._missing.meaning(error, self._clock.monotonic_s()) from error
        if len(polled):
            self._missing.found()
        if self._first_s is None and (len(polled) or self._has_passed_offsets()):
            self._first_s = self._clock.monotonic_s()
        if len(polled):
            self._epochs = continued(self._epochs, polled.epochs)
            self._buffered.append(polled)
            self._buffered_rows += len(polled)
            self._buffered_bytes += sum(map(len, filter(None, polled.values)))

    def _is_due(self) -> bool:
        batch = self._loader.batch
        return self._buffered_rows >= batch.rows or self._buffered_bytes >= batch.bytes or self._left_s() <= 0

    def _has_passed_offsets(self) -> bool:
        """Return whether offsets without records, as those of aborted transactions, have been passed. They
        are loaded too, as an empty range."""
        return any(at > self._start[partition] for partition, at in self._consumer.position().items())

    def _left_s(self) -> float:
        if self._first_s is None:
            return math.inf
        return max(0.0, self._first_s + self._loader.batch.interval_ms / 1000 - self._clock.monotonic_s())

    def _hand_over(self, sealed: _Sealed, timeout_s: float) -> bool:
        if not self._window.wait_for_room(timeout_s):
            return False
        record = self._recorded(sealed, self._confirm_topic())
        self._sealed = None
        self._start = sealed.end
        self._sequence += 1
        # look the label up before sending: after the note, a load of somebody else would pass for ours
        self._window.add_batch(Pending(record, sealed.content, must_ask=True))
        return True

    def _compare_with_log(self, timeout_s: float) -> None:
        """Raise LogTruncated where the log lacks records that were read."""
        position = self._consumer.position()
        self._epochs |= self._log.check(self._epochs, position, timeout_s)

    def _settle_cut(self, error: LogTruncated) -> None:
        """Handle a truncated log by the loader's policy: stop, or drop the lost records and read on.

        Records are dropped only where none of them was sent. Reading goes on where the last batch before them
        ends. Raises Unavailable while a batch of lost records is being attempted.
        """
        if self._loader.truncation != "drop":
            raise truncated(error) from error
        records = self._records.all(self._ownership.lease.name)
        first = first_beyond(records, error)
        if first is not None and not self._window.freeze_from(first):
            raise Unavailable(
                f"{error.message}: a batch of it is being tried", action="it is taken back once that is over"
            )
        records = take_back(self._records, self._ownership, records, error)
        self._window.withdraw_frozen()
        log.error("%s; what was read beyond is dropped", error)
        last = records[-1]
        self._start = {**dict.fromkeys(self._start, 0), **last.end_offsets}
        self._sequence = last.sequence_id + 1
        self._epochs = dict(last.end_epochs)
        self._buffered, self._buffered_rows, self._buffered_bytes = [], 0, 0
        self._sealed = self._first_s = None
        self._identity.truncation_settled()
        self._consumer.assign(dict(self._start))

    def _topic_id(self, timeout_s: float) -> str:
        topic_id = self._consumer.topic_id(timeout_s)
        self._missing.found()
        return topic_id

    def _confirm_topic(self) -> str | None:
        """Return the topic's id, requested now; None where the broker gives none.

        Raises Stopped where another topic has its name, or none for long; Unavailable while it is unknown.
        """
        try:
            topic_id = self._identity.confirm()
        except TopicRecreated as error:
            raise recreated(error) from error
        except NotFound as error:
            raise self._missing.meaning(error, self._clock.monotonic_s()) from error
        return topic_id

    def _recorded(self, sealed: _Sealed, topic_id: str | None) -> OffsetsRecord:
        lease = self._ownership.lease
        try:
            return self._records.insert(
                lease,
                self._sequence,
                self.next_label,
                sealed.start,
                sealed.end,
                topic_id=topic_id,
                end_epochs=self._epochs,
            )
        except CommitConflict:
            # our own insert, whose answer was lost; nobody else can have made it
            for record in self._records.all(lease.name):
                if record.sequence_id == self._sequence and record.epoch == lease.epoch:
                    assert (record.start_offsets, record.end_offsets) == (sealed.start, sealed.end)
                    return record
            raise

    def _look_for_partitions(self) -> None:
        """Add new partitions from offset 0, not from the start of their log: a gap must be noticed."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_check_s or self._window.is_recovering:
            return  # what an earlier process has sent is settled first, whatever the topic is by now
        try:
            present = set(self.partitions())
        except NotFound as error:
            raise self._missing.meaning(
                error, self._clock.monotonic_s()
            ) from error  # looked at again with the next step
        except Unavailable:
            self._next_check_s = now_s + PARTITIONS_CHECK_S
            return  # the consumer reports the broker's error; the next look comes
        self._missing.found()
        self._confirm_topic()
        self._next_check_s = now_s + PARTITIONS_CHECK_S
        if gone := sorted(self._start.keys() - present):
            raise Stopped(StopCause.TOPIC_GONE, f"{self._consumer.topic} has no partitions {gone} any more")
        if new := present - self._start.keys():
            self._consumer.add_partitions(dict.fromkeys(new, 0))
            self._start |= dict.fromkeys(new, 0)
