"""The choice of hosts whose names are kept where there is no room for all that ever spoke.

A host that is forgotten is named again when it reports. Until then it counts as one that has not been read,
so nothing closes too early.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

NEVER = -(2**63)
SILENT_MS = 24 * 3_600_000  # of event time


def worth_keeping(
    columns: Iterable[NDArray[np.int64]], names: int, room: int, newest_ms: int = NEVER
) -> NDArray[np.bool_]:
    """Select, of so many names, those that a partition holds; where these are more than `room`, only those
    that are not more than a day of event time behind the newest.

    `columns`: of each partition the latest instant by name, NEVER where there is none; may end early.
    `newest_ms`: if something newer has been read, which stands in none of them yet.
    """
    latest_ms = np.full(names, NEVER, np.int64)
    for column in columns:
        known = min(column.size, names)
        np.maximum(latest_ms[:known], column[:known], out=latest_ms[:known])
    seen: NDArray[np.bool_] = latest_ms != NEVER
    if int(seen.sum()) <= room:
        return seen
    silent_ms = max(int(latest_ms.max()), newest_ms) - SILENT_MS
    recent: NDArray[np.bool_] = latest_ms >= max(silent_ms, NEVER)
    return seen & recent
