"""Events lost for good: offsets that neither receivers nor Kafka held, and who let history go on."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rtolap.model.offsets import Offsets, PartRange

BY_MAX, REASON_MAX = 200, 2_000  # characters


class EventLoss(msgspec.Struct, frozen=True, kw_only=True):
    """A person has accepted that these offsets are not counted. How many events that is nobody knows.

    ranges             per partition `[start, end)`; receivers read on behind them
    start_ms, end_ms   event time of the segments that may lack events; late ones may be of earlier segments
    whole              segments in that time of which all was uploaded already: they lack nothing
    by, reason, at_ms  who accepted it, why, and when
    """

    ranges: tuple[PartRange, ...]
    start_ms: int
    end_ms: int
    whole: tuple[str, ...] = ()
    by: str
    reason: str
    at_ms: int

    def overlaps(self, start_ms: int | None, end_ms: int | None) -> bool:
        """With event time `[start_ms, end_ms)`; None is unbounded."""
        return (end_ms is None or self.start_ms < end_ms) and (start_ms is None or self.end_ms > start_ms)


def behind_losses(losses: Iterable[EventLoss], partition: int, offset: int) -> int:
    """Return the offset at which a partition is read on instead of at `offset`: behind what is lost."""
    ranges = sorted(
        (piece.start, piece.end) for loss in losses for piece in loss.ranges if piece.partition == partition
    )
    for start, end in ranges:
        if start <= offset < end:
            offset = end
    return offset


def losses_between(
    losses: Iterable[EventLoss],
    *,
    segment: str,
    start_ms: int,
    end_ms: int,
    covered: Offsets,
    target: Offsets,
) -> tuple[EventLoss, ...]:
    """Return what a segment's version from one vector to the next may lack, each loss cut to its offsets."""
    found = []
    for loss in losses:
        if segment in loss.whole or not loss.overlaps(start_ms, end_ms):
            continue
        cut = tuple(
            PartRange(piece.partition, start, end)
            for piece in loss.ranges
            for start in (max(piece.start, covered.get(piece.partition, 0)),)
            for end in (min(piece.end, target.get(piece.partition, start)),)
            if start < end
        )
        if cut:
            found.append(
                msgspec.structs.replace(loss, ranges=cut, whole=(), start_ms=start_ms, end_ms=end_ms)
            )
    return tuple(found)


def offsets_text(ranges: Iterable[PartRange]) -> str:
    return ", ".join(
        f"{piece.start}–{piece.end} of partition {piece.partition}"
        for piece in sorted(ranges, key=lambda piece: (piece.partition, piece.start))
    )
