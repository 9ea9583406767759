"""Messages of the query service over HTTP: answers, their warnings, and its copies of history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

ARROW_STREAM = "application/vnd.apache.arrow.stream"  # what a request accepts that wants no JSON
SESSION_TOKEN_HEADER = "Rtolap-Session-Token"
"""A request's: what its session has been answered, by any query service. A response's: that and this answer.
Several tokens of one session stand with SESSION_TOKEN_SEPARATOR between them."""
SESSION_TOKEN_SEPARATOR = ","
STATEMENT_HEADER = "Rtolap-Statement"
"""A response's: the id under which the logs of all services, and the query log, have the statement."""
ON_BEHALF_HEADER = "Rtolap-On-Behalf-Of"
"""A request's that has the cluster's token: for whom a service asks, percent-encoded, as `service:name`. The
statement has the rights, the share and the query log of a plain user with that name."""

WarningCode = Literal[
    "time_aligned",  # a condition on the event time counts by whole kept units
    "clock_in_utc",  # NOW() beside the local time of a zone
    "approximate",  # COUNT(DISTINCT …) out of sketches
    "records_refused",  # records of the topic that are in no count
    "not_enabled",  # a cube that has never read its topic
    "not_consuming",  # a cube that is disabled or paused: nothing newer arrives
    "events_lost",  # events of the time that is asked for are lost for good
    "column_since",  # older events do not have a column that is asked for: it is NULL there
    "text_cut",  # a text of GROUP_CONCAT does not hold all values
    "truncated_value",  # a text or number of which only a part counts beside another type
    "without_effect",  # what a definition asks for and does not get
]


class QueryWarning(msgspec.Struct, frozen=True, order=True):
    """A thing that a statement's result does not show by itself, returned beside it by every endpoint.

    `level` as MySQL's: a Note says how a number is meant, a Warning that it may not be as requested.
    """

    code: WarningCode
    level: Literal["Note", "Warning"]
    message: str


def refused_text(counts: Mapping[str, int], example: Mapping[str, str]) -> str:
    """Return a text about refused records, in the same words at every place that reports them.

    `counts`: reason → records, `example`: reason → what was wrong with one of them; empty where nothing was
    refused. *At least*, because a receiver counts what it has read itself.
    """
    total = sum(counts.values())
    if not total:
        return ""
    by_reason = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    reasons = [
        f"{reason} {number}" + (f", as {example[reason]}" if reason in example else "")
        for reason, number in by_reason
        if number
    ]
    return f"at least {total} {'record' if total == 1 else 'records'} refused ({'; '.join(reasons)})"


class QueryColumn(msgspec.Struct, frozen=True):
    name: str
    type: str


class QueryAnswer(msgspec.Struct, frozen=True):
    """The answer to a statement.

    Attributes:
        positions: cube → partition → next offset; the answer holds exactly the events below.
        warnings: how the rows are meant, where that is not exactly what was requested.
    """

    columns: tuple[QueryColumn, ...]
    rows: tuple[tuple[Any, ...], ...]
    positions: dict[str, dict[int, int]] = {}
    stats: tuple[dict[str, Any], ...] = ()
    warnings: tuple[QueryWarning, ...] = ()


class VersionCopies(msgspec.Struct, frozen=True):
    """A READY version, and how much of it is on the disk.

    Attributes:
        state: REMOTE, COPYING, PARTLY or CACHED.
        files, bytes: of all of it; None where the service has not looked, because it is older than what fits.
    """

    cube: str
    segment: str
    version: int
    state: str
    cached_files: int
    cached_bytes: int
    files: int | None
    bytes: int | None


class HistoryCacheReport(msgspec.Struct, frozen=True, kw_only=True):
    """The copies of history that a query service has.

    Attributes:
        state: OFF without a cache, else a condition of docs/operations/object_stores.md.
        found: what stops it.
        complete_from_ms: of every READY version that ends later, all is on the disk; None: of every version.
        versions: newest first, as many as were asked for.
    """

    state: str
    found: str = ""
    folder: str = ""
    bytes_max: int = 0
    cached_bytes: int = 0
    copying_bytes: int = 0
    leaving_bytes: int = 0
    cached_files: int = 0
    copied_bytes: int = 0
    complete_from_ms: int | None = None
    evicted: dict[str, int] = {}
    failures: dict[str, int] = {}
    versions: tuple[VersionCopies, ...] = ()


HISTORY_CACHE_OFF = HistoryCacheReport(state="OFF")
