"""Whole hours off are told from other differences."""

from __future__ import annotations

import numpy as np
import pytest
from rtolap.watermark.progress import SourceProgress
from rtolap.watermark.zones import whole_hours_off, zone_hint

HOUR_MS, MINUTE_MS = 3_600_000, 60_000


@pytest.mark.parametrize(
    ("difference_ms", "hint"),
    [
        (8 * HOUR_MS - 700, "8 whole hours ahead"),
        (-5 * HOUR_MS + 2 * MINUTE_MS, "5 whole hours behind"),
        (14 * HOUR_MS, "14 whole hours ahead"),
        (15 * HOUR_MS, ""),
        (2 * MINUTE_MS, ""),
        (HOUR_MS + 3 * MINUTE_MS, ""),
        (0, ""),
    ],
)
def test_only_a_zone_explains_whole_hours(difference_ms: int, hint: str) -> None:
    assert zone_hint(difference_ms).startswith(hint)
    assert bool(zone_hint(difference_ms)) == bool(hint) == bool(whole_hours_off(np.array([difference_ms]))[0])


def test_of_times_in_the_future_those_whole_hours_ahead_are_counted_apart() -> None:
    now_ms = 1_700_000_000_000
    progress = SourceProgress(3)
    latest_ms = now_ms + np.array([8 * HOUR_MS, 90 * MINUTE_MS, -8 * HOUR_MS])
    progress.apply(0, 0, np.arange(3), latest_ms, now_ms)
    assert (progress.counters.in_future, progress.counters.wrong_zone) == (2, 1)
    assert progress.latest_ms()[2] == latest_ms[2], "a host behind is late, and believed"
