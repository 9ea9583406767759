"""Refusals for reporters of hosts or instants that cannot be. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rtolap.protocols.watermark.messages import Refusal
from rtolap.watermark.zones import zone_hint

_NAMED_MAX = 5  # hosts named in one refusal


def refusals(
    where: str,
    names: Sequence[str] | None,
    at: NDArray[np.int64],
    latest_ms: NDArray[np.int64],
    *,
    now_ms: int,
    future_max_ms: int,
    kind: str,
) -> list[Refusal]:
    """Return the refusals of a report whose entries are `names` (None if its source knows no hosts), `at` −1
    if not listed. `kind` of the host list; `future_max_ms` after `now_ms` an instant is refused."""

    def named(rows: NDArray[np.int64]) -> str:
        if names is None:
            return f"{where}: an event time"
        shown = [names[row] for row in rows[:_NAMED_MAX].tolist()]
        more = f" and {rows.size - len(shown)} more" if rows.size > len(shown) else ""
        return f"{where}: {rows.size} hosts ({', '.join(shown)}{more})"

    refused = []
    unknown = np.flatnonzero(at < 0)
    if unknown.size:
        refused.append(
            Refusal(named(unknown), f"not in the host list (from {kind}): list them, or register them")
        )
    negative = np.flatnonzero((at >= 0) & (latest_ms < 0))
    if negative.size:
        refused.append(Refusal(named(negative), "event time before 1970; expected ms since the epoch"))
    ahead = np.flatnonzero((at >= 0) & (latest_ms > now_ms + future_max_ms))
    if ahead.size:
        ahead_ms = int(latest_ms[ahead[0]]) - now_ms
        hint = zone_hint(ahead_ms)
        why = f"event time {ahead_ms} ms ahead of the clock; expected at most {future_max_ms} ms"
        refused.append(Refusal(named(ahead), f"{why}; {hint}" if hint else why))
    return refused
