"""Offsets that this receiver has to read and Kafka no longer holds, until a person accepts their loss."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rtolap.base.errors import Refused, RtolapError
from rtolap.kafka.interfaces import OffsetsGone, StreamConsumer
from rtolap.model.event_loss import EventLoss, behind_losses
from rtolap.model.offsets import Offsets, PartRange

log = logging.getLogger(__name__)

ACTION = (
    "start the other receivers of this replica set: one whose disk holds them goes on; where none does, "
    "`rtolap segments accept-loss CUBE SEGMENT --reason TEXT` lets history go on without them"
)


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
        """There are some, and all of them may be passed over."""
        return bool(self.ranges) and all(
            behind_losses(losses, piece.partition, piece.start) >= piece.end for piece in self.ranges
        )

    def clear(self) -> None:
        self.ranges = ()
