"""A peer in one row: how far behind its queues are, whether that grows, and when they will be there.

lag         age of the oldest edit that is not shipped
remaining   bytes of logs that are not read yet, those of other tables with them
trend       how much of it comes or goes in a second, between two looks
catch_up    when nothing remains, if it goes on so
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import msgspec

from rtolap.sep.status.model import NOTHING, PeerStatus, QueueStatus, ReplicationStatus


class Spread(msgspec.Struct, frozen=True):
    """The spread of a value over the queues that report it."""

    worst: int
    median: float
    sum: int


class PeerSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A peer in one row.

    Attributes:
        is_remaining_lower_bound: True where sizes of logs are known only in part; then there is no trend.
        worst_server: the server with the largest lag; None where no queue lags.
        reasons: what queues wait for, and how many queues do.
        lag_trend: milliseconds a second; below 0 the lag shrinks. None where it is not known.
        remaining_trend_bytes_s: bytes a second; below 0 the rest shrinks. None where it is not known.
        catch_up_ms: 0 where all is shipped; None where it is not known, or where the rest grows.
    """

    peer: str
    enabled: bool | None
    sinks: int | None
    servers: int
    queues: int
    recovered_queues: int
    logs: Spread | None
    lag_ms: Spread | None
    remaining_bytes: Spread | None
    is_remaining_lower_bound: bool = False
    worst_server: str | None
    reasons: dict[str, int]
    lag_trend: float | None = None
    remaining_trend_bytes_s: float | None = None
    catch_up_ms: int | None = None


def summarize(status: ReplicationStatus, before: ReplicationStatus | None = None) -> list[PeerSummary]:
    """Return a row per peer, the furthest behind first. `before`: a look earlier, for trends."""
    summaries = [_summary(peer, status, before) for peer in status.peers]
    return sorted(summaries, key=lambda row: (-(row.lag_ms.worst if row.lag_ms else -1), row.peer))


def spread(values: Iterable[int | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread(max(known), statistics.median(known), sum(known)) if known else None


def _summary(peer: PeerStatus, status: ReplicationStatus, before: ReplicationStatus | None) -> PeerSummary:
    queues = status.queues_of(peer.peer)
    lag, remaining = _lag(queues), _remaining(queues)
    is_at_least = _is_at_least(queues)
    worst = max((row for row in queues if row.lag_ms), key=lambda row: row.lag_ms or 0, default=None)
    reasons: dict[str, int] = {}
    for row in queues:
        if row.reason is not None:
            reasons[row.reason] = reasons.get(row.reason, 0) + 1
    lag_trend = remaining_trend = None
    if before is not None and status.at_ms > before.at_ms and before.peer(peer.peer) is not None:
        span_s = (status.at_ms - before.at_ms) / 1000
        queues_before = before.queues_of(peer.peer)
        lag_before, remaining_before = _lag(queues_before), _remaining(queues_before)
        if lag is not None and lag_before is not None:
            lag_trend = (lag.worst - lag_before.worst) / span_s
        is_partly_sized = is_at_least or _is_at_least(queues_before)
        if remaining is not None and remaining_before is not None and not is_partly_sized:
            remaining_trend = (remaining.sum - remaining_before.sum) / span_s
    return PeerSummary(
        peer=peer.peer,
        enabled=peer.enabled,
        sinks=peer.sinks,
        servers=len({row.server for row in queues}),
        queues=len(queues),
        recovered_queues=sum(bool(row.recovered_from) for row in queues),
        logs=spread(row.logs for row in queues),
        lag_ms=lag,
        remaining_bytes=remaining,
        is_remaining_lower_bound=is_at_least,
        worst_server=None if worst is None else worst.server,
        reasons=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        lag_trend=lag_trend,
        remaining_trend_bytes_s=remaining_trend,
        catch_up_ms=_catch_up_ms(queues, lag, lag_trend, remaining, remaining_trend),
    )


def _catch_up_ms(
    queues: Sequence[QueueStatus],
    lag: Spread | None,
    lag_trend: float | None,
    remaining: Spread | None,
    remaining_trend: float | None,
) -> int | None:
    if queues and all(row.reason == NOTHING for row in queues):
        return 0
    if remaining is not None and remaining_trend is not None:  # bytes tell more than the oldest edit's age
        return round(1000 * remaining.sum / -remaining_trend) if remaining_trend < 0 else None
    if lag is not None and lag_trend is not None and lag_trend < 0:
        return round(1000 * lag.worst / -lag_trend)
    return None


def _lag(queues: Iterable[QueueStatus]) -> Spread | None:
    return spread(row.lag_ms for row in queues)


def _remaining(queues: Iterable[QueueStatus]) -> Spread | None:
    """Return the remaining bytes of the queues. A queue with nothing to replicate has nothing remaining,
    whatever else is in its log."""
    return spread(0 if row.reason == NOTHING else row.remaining_bytes for row in queues)


def _is_at_least(queues: Iterable[QueueStatus]) -> bool:
    return any(row.is_remaining_lower_bound and row.reason != NOTHING for row in queues)
