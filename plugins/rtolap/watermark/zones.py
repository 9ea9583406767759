"""Instants that are whole hours off: a host that logs its local time as UTC."""

from __future__ import annotations

import numpy as np

from rtolap.watermark.snapshot import Instants, Mask

_HOUR_MS = 3_600_000
_SLACK_MS = 120_000
_HOURS_MAX = 14  # no zone is further from UTC


def whole_hours_off(difference_ms: Instants) -> Mask:
    """Return by how many whole hours a clock is off. `difference_ms`: instants less the clock."""
    hours = np.rint(difference_ms / _HOUR_MS)
    near: Mask = np.abs(difference_ms - hours * _HOUR_MS) <= _SLACK_MS
    return near & (np.abs(hours) >= 1) & (np.abs(hours) <= _HOURS_MAX)


def zone_hint(difference_ms: int) -> str:
    """Return the hint in words; empty where the zone is not to blame."""
    if not whole_hours_off(np.array([difference_ms]))[0]:
        return ""
    hours = round(difference_ms / _HOUR_MS)
    side = "ahead" if hours > 0 else "behind"
    return f"{abs(hours)} whole hours {side}: does it log local time as UTC?"
