"""The way from the report of a partition to the progress and the rates of a source's hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rtolap.base.errors import DefinitionError
from rtolap.coordinator.applications.sessions import SessionNames
from rtolap.coordinator.applications.sources import SourceState
from rtolap.protocols.watermark.messages import HOSTS_MAX, Refusal, SourceReport, check_host_names
from rtolap.watermark.zones import zone_hint


@dataclass(frozen=True, slots=True)
class ReportColumns:
    """The columns of a report, an entry for each host.

    Attributes:
        index: position of the host in the session's names.
        latest_ms: event time up to which the host has been read.
        events: number of events since the report before; None where they were not counted.
    """

    index: NDArray[np.int32]
    latest_ms: NDArray[np.int64]
    events: NDArray[np.int64] | None


def columns(report: SourceReport) -> ReportColumns:
    """Return views of the report's bytes. Raises DefinitionError where lengths do not fit, or where numbers
    that count from 0 do not."""
    where = f"{report.level}/{report.partition}"
    latest_ms = _read(report.latest_ms, "<i8", f"latest_ms of {where}")
    index = _read(report.index, "<i4", f"index of {where}")
    events = _read(report.events, "<i8", f"events of {where}") if report.events else None
    if index.size != latest_ms.size or (events is not None and events.size != index.size):
        lengths = f"{index.size}, {latest_ms.size}" + (f", {events.size}" if events is not None else "")
        raise DefinitionError(f"the columns of {where} differ in length", found=f"{lengths} entries")
    for what, column in (("index", index), ("events", events)):
        if column is not None and column.size and int(column.min()) < 0:
            raise DefinitionError(
                f"{what} of {where} has a negative entry", expected="0 or more", found=int(column.min())
            )
    return ReportColumns(index.astype(np.int32, copy=False), latest_ms.astype(np.int64, copy=False), events)


def _read(data: bytes, kind: str, what: str) -> NDArray[np.int64]:
    size = np.dtype(kind).itemsize
    if len(data) % size:
        raise DefinitionError(f"{what} is cut off", expected=f"a multiple of {size} bytes", found=len(data))
    column: NDArray[np.int64] = np.frombuffer(data, kind)
    return column


@dataclass(frozen=True, slots=True)
class _Rows:
    """The entries of a report by the index of their host in the list.

    Attributes:
        at: index of the host; −1 where it is not listed.
        latest_ms: event time up to which the host has been read.
        events: number of events since the report before; None where they were not counted.
    """

    at: NDArray[np.int64]
    latest_ms: NDArray[np.int64]
    events: NDArray[np.int64] | None


def check(report: SourceReport) -> ReportColumns | None:
    """Check a report. Raises DefinitionError for a report that cannot be read; returns None for one in plain
    names."""
    if report.hosts_from + len(report.hosts) > HOSTS_MAX:
        raise DefinitionError(
            f"a session names too many hosts of {report.level}",
            expected=f"at most {HOSTS_MAX}",
            found=report.hosts_from + len(report.hosts),
        )
    if report.hosts:
        check_host_names(report.hosts, f"hosts of {report.level}/{report.partition}")
    return None if report.progress else columns(report)


def names_after(
    source: SourceState, report: SourceReport, known: int, columns: ReportColumns | None
) -> int | None:
    """Return how many names the session knows after the report; None if it counts on names that were never
    sent."""
    if report.hosts_from > known or report.hosts_from < 0:
        return None
    total = max(known, report.hosts_from + len(report.hosts))
    if columns is None or not source.named or not columns.index.size:
        return total
    return total if int(columns.index.max()) < total else None


def learn_names(report: SourceReport, session: SessionNames) -> None:
    """Learn names, also of a report that is refused: `names_after` counts them, and so does who goes on from
    there."""
    session.names.extend(report.hosts[len(session.names) - report.hosts_from :])


def apply_report(
    source: SourceState,
    report: SourceReport,
    session: SessionNames,
    columns: ReportColumns | None,
    now_ms: int,
) -> list[Refusal]:
    """Call `check`, `names_after` and `learn_names` first. A refused report has no effect."""
    rows = (
        _named(source, report, session, columns)
        if source.named
        else _nameless(source, report, columns, now_ms)
    )
    before_ms = source.progress.latest_in(report.partition, rows.at)
    unseen = source.progress.unseen(rows.at)
    applied = source.progress.apply(report.partition, report.generation, rows.at, rows.latest_ms, now_ms)
    where = f"{report.level}/{report.partition}"
    if applied.stale:
        now = source.progress.generation(report.partition)
        why = f"generation {report.generation} is over, the partition's consumer is of generation {now}"
        return [Refusal(where, why)]
    source.heard(report.partition, report.generation, report.partitions)
    if rows.events is not None:
        taken = applied.accepted
        source.rates.observe(rows.at[taken], rows.events[taken], rows.latest_ms[taken], applied.goes_on)
        if source.breaches is not None:
            new = applied.goes_on | unseen[taken]
            rows_new = np.flatnonzero(taken)[new]
            source.breaches.observe(before_ms[rows_new], rows.latest_ms[rows_new], rows.events[rows_new])
    if bool(applied.accepted.all()):
        return []
    return refusals(
        where,
        _names(report, session, columns) if source.named else None,
        rows.at,
        rows.latest_ms,
        now_ms=now_ms,
        future_max_ms=source.source.future_max_ms,
        kind=source.source.hosts.kind if source.source.hosts else "none",
    )


def missed_names(source: SourceState, session: SessionNames) -> bool:
    """Return True if a host is listed now that was not when the session named it: it has to be reported
    again."""
    if source.named:
        session.indices(source.hosts, source.list_state)
    return session.missed


def _named(
    source: SourceState, report: SourceReport, session: SessionNames, columns: ReportColumns | None
) -> _Rows:
    if columns is not None:
        at = session.indices(source.hosts, source.list_state)[columns.index]
        return _Rows(at, columns.latest_ms, columns.events)
    return _Rows(source.hosts.indices(list(report.progress)), _plain(report), None)


def _nameless(source: SourceState, report: SourceReport, columns: ReportColumns | None, now_ms: int) -> _Rows:
    """Apply a report without names: one host that is on all partitions; the largest sound instant is its
    progress."""
    latest_ms = _plain(report) if columns is None else columns.latest_ms
    sound = latest_ms[(latest_ms >= 0) & (latest_ms <= now_ms + source.source.future_max_ms)]
    counted = sound if sound.size else latest_ms
    largest = counted.max(keepdims=True) if counted.size else counted
    return _Rows(np.zeros(largest.size, np.int64), largest, None)


def _plain(report: SourceReport) -> NDArray[np.int64]:
    """Return the numbers of a report in plain names. A number that does not fit into 64 bits becomes the
    largest or smallest one, which is refused."""
    fitting = (min(max(instant_ms, -(2**63)), 2**63 - 1) for instant_ms in report.progress.values())
    return np.fromiter(fitting, np.int64, len(report.progress))


def _names(report: SourceReport, session: SessionNames, columns: ReportColumns | None) -> list[str]:
    """Return them in the order of the report's entries."""
    return list(report.progress) if columns is None else [session.names[at] for at in columns.index.tolist()]


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
