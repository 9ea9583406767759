"""Finds brokers that are slow at reads and writes, and the stage: the rule, as a function of windows.

A broker is slow whose 99th percentile of a read or write is above 300 ms. Kafka tells a total for that, and
for a fetch the total is no use: a consumer without new data waits in the broker for as long as it asked to
(`fetch.wait.max.ms`), in the stage `remote`. So an idle broker would be the slowest of all. Therefore

    Produce                         total, or the sum of its parts where that is less
    FetchConsumer, FetchFollower    request queue, local, response queue and send: all but the wait

Of a sum of stages JMX tells no percentile, only bounds: it is no smaller than each stage's own, and hardly
larger than their sum. A fetch is slow by the smaller and recovers by the larger; in between nothing changes.

A reading counts if `requests_min` requests came between two looks, so that nobody is judged by a handful.
`looks` of them in a row make a broker slow, or let it recover, `recovered_ms` or below: one long pause of a
broker's collector is not a slow broker. Percentiles of histograms forget over some five minutes; what the
window's own mean rules out is not believed (`stages.StageWindow`).

Between slow and well a broker is in one of four states at each kind of request, by one pure table:

                 ABOVE                  CONFIRMED
        NORMAL ─────────▶ SUSPECTED ─────────────────▶ SLOW
          ▲  ▲                │                        │  ▲
          │  └──── BELOW ─────┘                  BELOW │  │ ABOVE
          │                                            ▼  │
          └───────────────── CONFIRMED ────────── RECOVERING

ABOVE and BELOW are readings that say something: with enough requests, and beyond the threshold or well below
it. Anything else is no event, and leaves everything as it stands. CONFIRMED: as many readings of the same
kind came one after the other as the rule demands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from rtolap.base.transitions import step
from rtolap.fleet.monitoring.stages import PARTS, REQUEST_NAMES, Floats, RequestType, Stage, StageWindow

_FETCH_PARTS = tuple(stage for stage in PARTS if stage is not Stage.REMOTE)
_P99_OF_MEAN_MAX = 100.0

Key = tuple[int, RequestType]


class SlowState(StrEnum):
    NORMAL = "NORMAL"
    SUSPECTED = "SUSPECTED"
    SLOW = "SLOW"
    RECOVERING = "RECOVERING"


class SlowEvent(StrEnum):
    ABOVE = "ABOVE"
    BELOW = "BELOW"
    CONFIRMED = "CONFIRMED"


_S, _E = SlowState, SlowEvent

TRANSITIONS: dict[tuple[SlowState, SlowEvent], SlowState] = {
    (_S.NORMAL, _E.ABOVE): _S.SUSPECTED,
    (_S.NORMAL, _E.BELOW): _S.NORMAL,
    (_S.SUSPECTED, _E.ABOVE): _S.SUSPECTED,
    (_S.SUSPECTED, _E.BELOW): _S.NORMAL,
    (_S.SUSPECTED, _E.CONFIRMED): _S.SLOW,
    (_S.SLOW, _E.ABOVE): _S.SLOW,
    (_S.SLOW, _E.BELOW): _S.RECOVERING,
    (_S.RECOVERING, _E.BELOW): _S.RECOVERING,
    (_S.RECOVERING, _E.ABOVE): _S.SLOW,
    (_S.RECOVERING, _E.CONFIRMED): _S.NORMAL,
}
# Those in which it is called slow: what was confirmed stays so until its recovery is.
CALLED_SLOW = frozenset({SlowState.SLOW, SlowState.RECOVERING})


def transition(state: SlowState, event: SlowEvent, *, subject: str) -> SlowState:
    """Return the next state. Raises IllegalTransition naming what is legal."""
    return step(TRANSITIONS, state, event, subject=subject)


@dataclass(frozen=True)
class SlowRule:
    """The rule by which a broker is slow.

    Attributes:
        threshold_ms: A percentile above this is slow.
        recovered_ms: A percentile at or below this has recovered.
    """

    threshold_ms: float = 300.0
    recovered_ms: float = 240.0
    requests_min: int = 100
    looks: int = 3


@dataclass(frozen=True)
class BrokerStanding:
    """The state of a broker for one kind of request.

    Attributes:
        readings: Consecutive readings of the kind for which `state` waits.
        since_ms: Time at which the state was entered.
    """

    state: SlowState = SlowState.NORMAL
    readings: int = 0
    since_ms: int = 0


@dataclass(frozen=True)
class BrokerRequests:
    """A broker's requests of a kind in a window, and the broker's standing after it.

    Attributes:
        p99_ms: the lower bound of the 99th percentile.
        p99_ms_max: an approximate upper bound of it.
        stage: the stage in which the slowest requests spend most time; None if unknown.
        stage_p99_ms: the 99th percentile of that stage.
        share: the stage's share of the time of all requests, from 0 to 1; NaN without means.
        throttle_p99_ms: how long a quota mutes clients. It does not count as slowness of the broker.
    """

    broker: int
    request: RequestType
    standing: BrokerStanding
    requests: int
    p99_ms: float
    p99_ms_max: float
    stage: Stage | None
    stage_p99_ms: float
    share: float
    throttle_p99_ms: float

    @property
    def is_slow(self) -> bool:
        return self.standing.state in CALLED_SLOW

    @property
    def name(self) -> str:
        return f"broker {self.broker}, {REQUEST_NAMES[self.request]}"


def judge(
    standings: Mapping[Key, BrokerStanding], window: StageWindow, rule: SlowRule
) -> tuple[dict[Key, BrokerStanding], list[BrokerRequests]]:
    """Return the standings after the window, and its rows. A broker that the window lacks stands as it did:
    silence is no recovery."""
    low, high = judged_p99_ms(window)
    after = dict(standings)
    rows: list[BrokerRequests] = []
    for row in range(len(window)):
        key = (int(window.brokers[row]), RequestType(window.requests[row]))
        requests = int(window.counts[row])
        event = _event(requests, float(low[row]), float(high[row]), rule)
        standing = after.get(key, BrokerStanding(since_ms=window.from_ms))
        if event is not None:
            standing = _next(standing, event, window.to_ms, rule, f"broker {key[0]}")
        after[key] = standing
        rows.append(_row(window, row, key, standing, float(low[row]), float(high[row])))
    return after, rows


def judged_p99_ms(window: StageWindow) -> tuple[Floats, Floats]:
    """Return by row the least that it can be, and about the most. NaN where a stage that counts is not
    known."""
    # the histogram of the total alone may still remember what its parts' means rule out
    low = np.fmin(window.p99_ms[:, Stage.TOTAL], window.p99_ms[:, PARTS].sum(axis=1))
    high = low.copy()
    fetches = window.requests != RequestType.PRODUCE
    parts = window.p99_ms[fetches][:, _FETCH_PARTS]
    means = window.mean_ms[fetches][:, _FETCH_PARTS].sum(axis=1)
    low[fetches] = parts.max(axis=1)
    high[fetches] = np.fmin(parts.sum(axis=1), _P99_OF_MEAN_MAX * means)
    return low, high


def _event(requests: int, low_ms: float, high_ms: float, rule: SlowRule) -> SlowEvent | None:
    if requests < rule.requests_min:
        return None
    if low_ms > rule.threshold_ms:
        return SlowEvent.ABOVE
    return SlowEvent.BELOW if high_ms <= rule.recovered_ms else None


def _next(
    standing: BrokerStanding, event: SlowEvent, now_ms: int, rule: SlowRule, subject: str
) -> BrokerStanding:
    state = transition(standing.state, event, subject=subject)
    if state is not standing.state:
        standing = BrokerStanding(state, 1, now_ms)
    else:
        standing = replace(standing, readings=standing.readings + 1)
    if state in (SlowState.SUSPECTED, SlowState.RECOVERING) and standing.readings >= rule.looks:
        return BrokerStanding(
            transition(state, SlowEvent.CONFIRMED, subject=subject), standing.readings, now_ms
        )
    return standing


def _row(
    window: StageWindow, row: int, key: Key, standing: BrokerStanding, low_ms: float, high_ms: float
) -> BrokerRequests:
    parts = PARTS if key[1] is RequestType.PRODUCE else _FETCH_PARTS
    p99_ms, mean_ms = window.p99_ms[row, parts], window.mean_ms[row, parts]
    stage: Stage | None = None
    stage_p99_ms = share = float("nan")
    if not np.isnan(p99_ms).all():
        # the mean orders equal percentiles, such as all zero
        order = np.lexsort((np.nan_to_num(mean_ms, nan=-1.0), np.nan_to_num(p99_ms, nan=-1.0)))
        stage, stage_p99_ms = parts[order[-1]], float(p99_ms[order[-1]])
        whole = float(np.nansum(mean_ms))
        share = float(mean_ms[order[-1]]) / whole if whole > 0 else float("nan")
    return BrokerRequests(
        broker=key[0],
        request=key[1],
        standing=standing,
        requests=int(window.counts[row]),
        p99_ms=low_ms,
        p99_ms_max=high_ms,
        stage=stage,
        stage_p99_ms=stage_p99_ms,
        share=share,
        throttle_p99_ms=float(window.p99_ms[row, Stage.THROTTLE]),
    )
