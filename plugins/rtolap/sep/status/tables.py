"""Rows of a look for people: sorted, filtered, with units."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rtolap.base.errors import DefinitionError
from rtolap.model.quantities import instant_text, size_text, span_text
from rtolap.sep.status.model import NOTHING, QueueStatus
from rtolap.sep.status.summary import PeerSummary, Spread

SUMMARY_COLUMNS = (
    "peer",
    "servers",
    "queues",
    "recovered",
    "peer count",
    "logs worst/median/sum",
    "lag worst/median",
    "remaining worst/median/sum",
    "trend",
    "caught up in",
    "worst server",
    "waits",
)
QUEUE_COLUMNS = (
    "peer",
    "server",
    "recovered from",
    "queue size",
    "further logs",
    "progress",
    "lag",
    "age of last shipped",
    "last shipped",
    "last slept",
)
_STEADY_BYTES_S = 1.0

_ORDERS: dict[str, Callable[[QueueStatus], Any]] = {
    "lag": lambda row: -(row.lag_ms or 0),
    "remaining": lambda row: -(row.remaining_bytes or 0),
    "logs": lambda row: -(row.logs or 0),
    "shipped": lambda row: row.last_shipped_ms or 0,
    "server": lambda row: row.server,
}
ORDERS = tuple(_ORDERS)


def choose(
    rows: Iterable[QueueStatus],
    *,
    order: str = "lag",
    server: str = "",
    recovered: bool = False,
    behind_ms: int = 0,
) -> list[QueueStatus]:
    """Sort, worst first, and keep queues whose server's name has `server` in it, that were `recovered`, and
    that are `behind_ms` behind. Raises DefinitionError for an unknown `order`."""
    if order not in _ORDERS:
        raise DefinitionError("sorted by what?", expected=", ".join(ORDERS), found=order)
    chosen = [
        row
        for row in rows
        if server in row.server
        and (bool(row.recovered_from) or not recovered)
        and (row.lag_ms or 0) >= behind_ms
    ]
    return sorted(chosen, key=lambda row: (_ORDERS[order](row), row.peer, row.server, row.queue))


def summary_row(row: PeerSummary) -> tuple[Any, ...]:
    """Return a row in the order of SUMMARY_COLUMNS."""
    logs, lag, remaining = row.logs, row.lag_ms, row.remaining_bytes
    return (
        row.peer if row.enabled is not False else f"{row.peer} (disabled)",
        row.servers,
        row.queues,
        row.recovered_queues,
        row.sinks,
        None if logs is None else f"{logs.worst} / {logs.median:g} / {logs.sum}",
        None if lag is None else f"{span_text(lag.worst)} / {span_text(lag.median)}",
        None if remaining is None else _remaining(remaining, row.is_remaining_lower_bound),
        trend(row),
        None if row.catch_up_ms is None else span_text(row.catch_up_ms),
        row.worst_server,
        "; ".join(f"{reason} ({count})" for reason, count in row.reasons.items()),
    )


def queue_row(row: QueueStatus) -> tuple[Any, ...]:
    """Return a row in the order of QUEUE_COLUMNS."""
    return (
        row.peer,
        row.server,
        ", ".join(row.recovered_from) or None,
        row.logs,
        None if row.further_bytes is None else _size(row.further_bytes, row.is_further_lower_bound),
        progress(row),
        None if row.lag_ms is None else span_text(row.lag_ms),
        None if row.last_shipped_age_ms is None else span_text(row.last_shipped_age_ms),
        None if row.last_shipped_ms is None else instant_text(row.last_shipped_ms),
        slept(row),
    )


def progress(row: QueueStatus) -> str | None:
    """Return the part of the current log, or how many bytes of it where its size is not known whole."""
    if row.progress is not None:
        return f"{row.progress:.0%}"
    if row.position_bytes is None:
        return None
    whole = _size(row.log_bytes, True) if row.is_log_lower_bound and row.log_bytes else "?"
    return f"{size_text(row.position_bytes)} of {whole}"


def _size(number: int, is_at_least: bool) -> str:
    return f"at least {size_text(number)}" if is_at_least else size_text(number)


def _remaining(remaining: Spread, is_at_least: bool) -> str:
    numbers = " / ".join(size_text(number) for number in (remaining.worst, remaining.median, remaining.sum))
    return f"at least {numbers}" if is_at_least else numbers


def slept(row: QueueStatus) -> str | None:
    if row.reason is None:
        return None
    if row.since_ms is None:
        return row.reason
    verb = "last shipped" if row.reason == NOTHING else "for"
    return f"{row.reason}, {verb} {span_text(row.since_ms)}" + (" ago" if row.reason == NOTHING else "")


def trend(row: PeerSummary) -> str | None:
    if row.remaining_trend_bytes_s is not None:
        if abs(row.remaining_trend_bytes_s) < _STEADY_BYTES_S:
            return "steady"
        verb = "grows" if row.remaining_trend_bytes_s > 0 else "shrinks"
        return f"{verb} by {size_text(abs(row.remaining_trend_bytes_s))}/s"
    if row.lag_trend is None:
        return None
    if abs(row.lag_trend) < 1:
        return "steady"
    return f"{'grows' if row.lag_trend > 0 else 'shrinks'} by {span_text(abs(row.lag_trend))}/s"
