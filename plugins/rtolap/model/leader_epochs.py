"""The leader epochs of the records that were read of one partition (KIP-320).

Kafka numbers the leaders of a partition. Each record carries the epoch of the leader that took it, and the
epochs of a log only grow. An offset alone does not name a record: a log that lost its tail gives the same
offsets to other records, under a larger epoch. Offset and epoch together do.

    read       epoch 3: 0 … 49     epoch 4: 50 … 79                      end 80
    the log    epoch 3: 0 … 59                       epoch 6: 60 …       they diverge at 50
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

EPOCHS_MAX = 64  # of one partition: older ones are forgotten, and no longer compared


class EpochRange(msgspec.Struct, frozen=True, array_like=True):
    """Records of one epoch that were read: the offset of the first, and behind the last."""

    epoch: int
    start: int
    end: int


class LeaderEpochs(msgspec.Struct, frozen=True, array_like=True):
    """The epochs of what was read of one partition.

    Attributes:
        ranges: ascending, at least one. Between two of them no record was seen: transaction markers are no
            records, and what another receiver has brought into history was not read here.
    """

    ranges: tuple[EpochRange, ...]

    @property
    def epoch(self) -> int:
        """Return the epoch of the last record."""
        return self.ranges[-1].epoch

    @property
    def end(self) -> int:
        """Return the offset behind the last record."""
        return self.ranges[-1].end

    def epoch_below(self, offset: int) -> int | None:
        """Return the epoch of the last record below `offset`; None where that is not known."""
        return next((known.epoch for known in reversed(self.ranges) if known.start < offset), None)

    def cut(self, offset: int) -> LeaderEpochs | None:
        """Return the epochs of the records below `offset`; None where there are none."""
        below = tuple(
            EpochRange(known.epoch, known.start, min(known.end, offset))
            for known in self.ranges
            if known.start < offset
        )
        return LeaderEpochs(below) if below else None


PartitionEpochs = Mapping[int, LeaderEpochs]
"""Leader epochs by partition; a partition that is missing has none that are known."""


def continued(known: PartitionEpochs, read: PartitionEpochs) -> dict[int, LeaderEpochs]:
    """Return the epochs of `known` with those of records that were read behind them."""
    return {**known, **{p: _joined(known[p], more) if p in known else more for p, more in read.items()}}


def _joined(known: LeaderEpochs, more: LeaderEpochs) -> LeaderEpochs:
    last = known.ranges[-1]
    ends = [last.end, *(each.end for each in more.ranges if each.epoch == last.epoch)]
    newer = tuple(each for each in more.ranges if each.epoch > last.epoch)
    widened = EpochRange(last.epoch, last.start, max(ends))
    return LeaderEpochs((*known.ranges[:-1], widened, *newer)[-EPOCHS_MAX:])


def of_marks(marks: Iterable[tuple[int, int]]) -> LeaderEpochs | None:
    """Return what is known of offsets that were stored with the epoch of the record before each."""
    ranges: dict[int, EpochRange] = {}
    for offset, epoch in sorted(marks):
        if offset > 0:
            start = ranges[epoch].start if epoch in ranges else offset - 1
            ranges[epoch] = EpochRange(epoch, start, offset)
    ascending = tuple(ranges[epoch] for epoch in sorted(ranges))
    return LeaderEpochs(ascending[-EPOCHS_MAX:]) if ascending else None
