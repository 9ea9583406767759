"""The watch over a topic: the ends of its logs, which tell idle from late and a replay from the present,
whether it is there and still the same, and which offsets that this receiver has to read it no longer holds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rtolap.base.clock import Clock
from rtolap.base.errors import Refused, RtolapError, Unavailable
from rtolap.cubes.receiver.core.checkpointing import TOPIC_WAIT_S
from rtolap.cubes.receiver.core.partition_progress import ConsumerProgress
from rtolap.kafka.interfaces import LogTruncated, OffsetsGone, StreamConsumer, TopicRecreated
from rtolap.kafka.topic_identity import TopicIdentity
from rtolap.model.completeness import EventLoss, behind_losses
from rtolap.model.offsets import Offsets, PartRange

log = logging.getLogger(__name__)

LOG_END_EVERY_S = 1.0
_TIMEOUT_S = 1.0

ACTION = (
    "start the other receivers of this replica set: one whose disk holds them goes on; where none does, "
    "`rtolap segments accept-loss CUBE SEGMENT --reason TEXT` lets history go on without them"
)


@dataclass(eq=False)
class TopicWatch:
    """The watch over a topic. With `beside`, another thread calls `poll` every LOG_END_EVERY_S, beside the
    core.

    Attributes:
        is_confirmed: True while the assigned positions are known to be of this topic.
    """

    consumer: StreamConsumer
    topic: TopicIdentity
    progress: ConsumerProgress
    clock: Clock
    beside: bool
    _looked_at_s: float = field(default=float("-inf"), init=False)
    is_confirmed: bool = field(default=False, init=False)
    _missing_after: int | None = field(default=None, init=False)  # confirmations before it was missing

    def poll_if_due(self, partitions: Iterable[int]) -> str | None:
        """Poll as `poll` does, but at most every LOG_END_EVERY_S, and never while another thread polls."""
        now_s = self.clock.monotonic_s()
        if self.beside or now_s - self._looked_at_s < LOG_END_EVERY_S:
            return None
        self._looked_at_s = now_s
        return self.poll(partitions)

    def poll(self, partitions: Iterable[int]) -> str | None:
        """Look up the ends and return the error, if any. Calls Kafka: tens of milliseconds in which a core
        that calls it does not consume."""
        requested_s = self.clock.monotonic_s()
        try:
            ends = {p: self.consumer.log_range(p, _TIMEOUT_S).end for p in partitions}
            self.topic.confirm(_TIMEOUT_S)
            self.progress.log_ends = ends
        except RtolapError as error:
            self.progress.log_ends = {}
            return str(error)
        self.progress.log_ends_requested_s = requested_s
        return None

    def assigned(self) -> None:
        """Require that newly assigned positions are compared with the topic before anything is read."""
        self.is_confirmed = False

    def confirm_assigned(self) -> str | None:
        """Confirm the topic before anything is read from the assigned positions; return the error while that
        is not possible."""
        if not self.is_confirmed:
            try:
                self.topic.confirm(TOPIC_WAIT_S)
            except Unavailable as error:
                return str(error)
            self.is_confirmed = True
        return None

    def cause_of(self, error: RtolapError) -> RtolapError:
        """Return why reading failed: an offset that is gone may be one of a topic that is gone, or of a log
        that was cut."""
        if isinstance(error, OffsetsGone):
            try:
                self.topic.confirm(TOPIC_WAIT_S)
            except (TopicRecreated, LogTruncated) as cause:
                return cause
            except RtolapError as cause:
                log.info("whether the topic is another one is not known: %s", cause)
        return error

    def note_missing(self) -> None:
        self._missing_after = self.topic.confirmations

    def returned(self, partitions: Iterable[int]) -> bool:
        """Return True, once, if the topic was missing and is there again. Raises TopicRecreated where it is
        another one.
        """
        if self._missing_after is None:
            return False
        self.poll_if_due(partitions)
        self.topic.raise_if_changed()
        if self.topic.confirmations <= self._missing_after:
            return False
        self._missing_after = None
        return True


class LostOffsets:
    """The lost offsets of one cube; changed by the core thread only. `ranges` is empty while nothing is
    missing."""

    def __init__(self, consumer: StreamConsumer) -> None:
        self.ranges: tuple[PartRange, ...] = ()
        self._consumer = consumer

    def note(self, error: RtolapError, positions: Offsets) -> RtolapError:
        """Note the range that the error names, and where else the log begins beyond a position: all is
        accepted at once. Returns the error, with what can be done."""
        if not isinstance(error, OffsetsGone) or error.position >= error.start:
            return error
        lost = {error.partition: PartRange(error.partition, error.position, error.start)}
        for partition, position in positions.items():
            try:
                start = self._consumer.log_range(partition).start
            except RtolapError as unknown:
                log.info("where partition %d begins is not known: %s", partition, unknown)
                break  # each look takes seconds: the next failure reports the others
            if position < start and partition not in lost:
                lost[partition] = PartRange(partition, position, start)
        self.ranges = tuple(lost[partition] for partition in sorted(lost))
        return Refused(error.message, expected=error.expected, found=error.found, action=ACTION)

    def accepted(self, losses: Sequence[EventLoss]) -> bool:
        """Return True if there are lost records, and all of them may be passed over."""
        return bool(self.ranges) and all(
            behind_losses(losses, piece.partition, piece.start) >= piece.end for piece in self.ranges
        )

    def clear(self) -> None:
        self.ranges = ()
