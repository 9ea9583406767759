"""The completeness of a segment: as known when it was closed, and as it turned out to have been."""

from __future__ import annotations

from typing import Literal

import msgspec

PPM = 1_000_000

ClosedBy = Literal["watermark", "approval", "forced"]
_ASSURANCE: tuple[ClosedBy, ...] = ("watermark", "approval", "forced")  # the strongest first


class Completeness(msgspec.Struct, frozen=True, kw_only=True):
    """The completeness of a window's events as known at the moment its closing was decided.

    application            whose watermark the cube closes by
    window_end_ms          the window this was computed for; a segment that ends earlier misses no more
    watermark_ms           input watermark of the cube's sink, None if there was none yet
    expected_missing_ppm   share of the window's events that were still to come, by the hosts' estimated
                           rates; None where it is unknown
    bound_ppm              its upper bound, the estimate's own error included
    approved_by            who approved the window before the watermark passed it
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
    """Late ones among all events, in parts per million, rounded up."""
    return -(-late_events * PPM // events) if events else 0
