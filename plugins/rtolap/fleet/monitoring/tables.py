"""Rows of windows and of judged brokers for people, with units."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from rtolap.fleet.monitoring.causes import Cause
from rtolap.fleet.monitoring.slow import BrokerRequests
from rtolap.fleet.monitoring.stages import REQUEST_NAMES, STAGE_NAMES, RequestType, Stage, StageWindow
from rtolap.model.quantities import instant_text

STAGE_COLUMNS = ("broker", "request", "requests", "per second", *(STAGE_NAMES[stage] for stage in Stage))
SLOW_COLUMNS = (
    "broker",
    "request",
    "state",
    "since",
    "p99",
    "slowest stage",
    "share",
    "behind it",
    "requests",
)


def stage_rows(window: StageWindow, only: Collection[int] = ()) -> list[tuple[Any, ...]]:
    """Return rows in the order of STAGE_COLUMNS, by broker. `only` names the brokers; empty means all.

    A stage is shown by the mean of the window's requests, and by p99.
    """
    seconds = max((window.to_ms - window.from_ms) / 1000, 1e-3)
    rows = []
    for row in range(len(window)):
        broker, count = int(window.brokers[row]), int(window.counts[row])
        if only and broker not in only:
            continue
        rows.append(
            (
                broker,
                REQUEST_NAMES[RequestType(window.requests[row])],
                None if count < 0 else count,
                None if count < 0 else round(count / seconds, 1),
                *(
                    mean_and_p99(float(window.mean_ms[row, stage]), float(window.p99_ms[row, stage]))
                    for stage in Stage
                ),
            )
        )
    return rows


def slow_row(row: BrokerRequests, cause: Cause | None) -> tuple[Any, ...]:
    """Return a row in the order of SLOW_COLUMNS."""
    stage = None
    if row.stage is not None:
        stage = f"{STAGE_NAMES[row.stage]} {milliseconds(row.stage_p99_ms)}"
    return (
        row.broker,
        REQUEST_NAMES[row.request],
        row.standing.state.lower(),
        instant_text(row.standing.since_ms) if row.standing.since_ms else None,
        milliseconds(row.p99_ms),
        stage,
        None if math.isnan(row.share) else f"{row.share:.0%}",
        None if cause is None else cause.text,
        None if row.requests < 0 else row.requests,
    )


def stage_document(window: StageWindow) -> list[dict[str, object]]:
    """Return the same for programs: numbers in milliseconds, null where nothing is known."""
    return [
        {
            "broker": int(window.brokers[row]),
            "request": REQUEST_NAMES[RequestType(window.requests[row])],
            "requests": int(window.counts[row]) if window.counts[row] >= 0 else None,
            "stages": {
                STAGE_NAMES[stage]: {
                    "mean_ms": number(window.mean_ms[row, stage]),
                    "p99_ms": number(window.p99_ms[row, stage]),
                    "histogram_p99_ms": number(window.histogram_p99_ms[row, stage]),
                }
                for stage in Stage
            },
        }
        for row in range(len(window))
    ]


def slow_document(row: BrokerRequests, cause: Cause | None) -> dict[str, object]:
    return {
        "broker": row.broker,
        "request": REQUEST_NAMES[row.request],
        "state": row.standing.state,
        "is_slow": row.is_slow,
        "since_ms": row.standing.since_ms,
        "readings": row.standing.readings,
        "requests": row.requests if row.requests >= 0 else None,
        "p99_ms": number(row.p99_ms),
        "p99_ms_max": number(row.p99_ms_max),
        "stage": None if row.stage is None else STAGE_NAMES[row.stage],
        "stage_p99_ms": number(row.stage_p99_ms),
        "share": number(row.share),
        "throttle_p99_ms": number(row.throttle_p99_ms),
        "cause": cause,
    }


def number(value: float | np.floating[Any]) -> float | None:
    return None if math.isnan(value) else float(value)


def milliseconds(value: float) -> str | None:
    """Format a time with three significant digits: 0.25 ms, 12 ms, 1.3 s."""
    if math.isnan(value):
        return None
    return f"{value / 1000:.3g} s" if value >= 1000 else f"{value:.3g} ms"


def mean_and_p99(mean_ms: float, p99_ms: float) -> str | None:
    if math.isnan(mean_ms) and math.isnan(p99_ms):
        return None
    return f"{milliseconds(mean_ms) or '?'} / {milliseconds(p99_ms) or '?'}"
