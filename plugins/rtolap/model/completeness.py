"""The completeness of a segment's events: as known when it was closed, as it turned out, and losses for good.

A loss is of offsets that neither receivers nor Kafka held; a person has let history go on without them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from rtolap.model.offsets import Offsets, PartRange

PPM = 1_000_000

ClosedBy = Literal["watermark", "approval", "forced"]
_ASSURANCE: tuple[ClosedBy, ...] = ("watermark", "approval", "forced")  # the strongest first

BY_MAX, REASON_MAX = 200, 2_000  # characters


class Completeness(msgspec.Struct, frozen=True, kw_only=True):
    """The completeness of a window's events as known when its closing was decided.

    Attributes:
        application: whose watermark the cube closes by.
        window_end_ms: end of the window this was computed for; a segment that ends earlier misses no more.
        watermark_ms: input watermark of the cube's sink; None if there was none yet.
        expected_missing_ppm: share of the window's events that were still to come, by the hosts' estimated
            rates; None where it is unknown.
        bound_ppm: its upper bound, which includes the estimate's own error.
        approved_by: who approved the window before the watermark passed it.
    """

    application: str
    window_end_ms: int
    closed_by: ClosedBy
    watermark_ms: int | None = None
    expected_missing_ppm: int | None = None
    bound_ppm: int | None = None
    approved_by: str | None = None


def weaker(one: Completeness | None, other: Completeness | None) -> Completeness | None:
    """Return what holds of a segment whose partitions were closed by both: the lesser assurance."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda known: (_ASSURANCE.index(known.closed_by), _bound(known)))


def _bound(known: Completeness) -> int:
    return PPM if known.bound_ppm is None else known.bound_ppm


def late_ppm(late_events: int, events: int) -> int:
    """Return the share of late events among all events, in parts per million, rounded up."""
    return -(-late_events * PPM // events) if events else 0


def is_breached(known: Completeness | None, late_share_ppm: int | None) -> bool:
    """Return True where more events came after a window had closed than were stated at most then."""
    if known is None or known.bound_ppm is None or late_share_ppm is None:
        return False
    return late_share_ppm > known.bound_ppm


class EventLoss(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets that a person has accepted as not counted. The number of their events is unknown.

    Attributes:
        ranges: `[start, end)` by partition; receivers read on behind them.
        start_ms: first event time of the segments that may lack events; late events may be of earlier
            segments.
        end_ms: end of that time.
        whole: segments in that time that were uploaded completely before: they lack nothing.
        by: who accepted the loss.
        reason: why.
        at_ms: when.
    """

    ranges: tuple[PartRange, ...]
    start_ms: int
    end_ms: int
    whole: tuple[str, ...] = ()
    by: str
    reason: str
    at_ms: int

    def overlaps(self, start_ms: int | None, end_ms: int | None) -> bool:
        """Return True if the event time overlaps `[start_ms, end_ms)`; None is unbounded."""
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
