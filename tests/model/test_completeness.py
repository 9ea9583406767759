"""What is kept of a segment's completeness when several closed it, and the share of what came late."""

from __future__ import annotations

import pytest
from rtolap.model.completeness import ClosedBy, Completeness, late_ppm, weaker


def known(closed_by: ClosedBy, bound_ppm: int | None) -> Completeness:
    return Completeness(application="a", window_end_ms=1, closed_by=closed_by, bound_ppm=bound_ppm)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (known("watermark", 5), known("approval", 1)),
        (known("approval", 5), known("forced", 1)),
        (known("watermark", 1), known("watermark", 2)),
        (known("watermark", 2), known("watermark", None)),
    ],
)
def test_the_lesser_assurance_counts(one: Completeness, other: Completeness) -> None:
    assert weaker(one, other) == weaker(other, one) == other


def test_one_that_says_nothing_changes_nothing() -> None:
    assert weaker(None, known("forced", 1)) == weaker(known("forced", 1), None) == known("forced", 1)
    assert weaker(None, None) is None


def test_shares_of_late_events_are_rounded_up() -> None:
    assert late_ppm(0, 10) == late_ppm(0, 0) == 0
    assert late_ppm(1, 3_000_000) == 1
    assert late_ppm(1, 10) == 100_000
