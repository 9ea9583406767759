"""The entry of a statement in the query log, and the columns of its table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pyarrow as pa

from rtolap.query.plan import ReadStats

OK = "ok"
QUERY_LOG = "query_log"  # in information_schema
Row = tuple[str | int | float, ...]
_MOMENT = pa.timestamp("us")
SCHEMA = pa.schema(
    [
        ("FINISHED_AT", _MOMENT),
        ("STARTED_AT", _MOMENT),
        ("SERVICE", pa.string()),
        ("USER_NAME", pa.string()),
        ("DOOR", pa.string()),
        ("DATABASE_NAME", pa.string()),
        ("STATEMENT", pa.string()),
        ("OUTCOME", pa.string()),
        ("ERROR", pa.string()),
        ("ELAPSED_MS", pa.float64()),
        ("ROWS_RETURNED", pa.int64()),
        ("BYTES_RETURNED", pa.int64()),
        ("CUBES", pa.string()),
        ("READS", pa.string()),
        ("ENGINE", pa.string()),
        ("HISTORY_SEGMENTS", pa.int64()),
        ("PRUNED_SEGMENTS", pa.int64()),
        ("RECEIVERS", pa.int64()),
        ("ROWS_READ", pa.int64()),
        ("PARTIAL_ROWS", pa.int64()),
        ("PARTIAL_BYTES", pa.int64()),
        ("FILES_READ", pa.int64()),
        ("SPILLED_BYTES", pa.int64()),
        ("FETCH_MS", pa.float64()),
        ("STATEMENT_ID", pa.string()),
    ]
)


@dataclass(frozen=True)
class Asked:
    """A statement when it comes.

    Attributes:
        text: cut, see `texts`.
        user: empty for clients that have the cluster's token.
        door: http or mysql; empty for what the service itself asks.
        database: empty for the cubes' own.
        statement_id: under which the logs of all services have it; empty for what the service itself asks.
    """

    text: str
    user: str
    door: str
    database: str
    statement_id: str = ""


@dataclass
class Ended:
    """The end of a statement.

    Attributes:
        outcome: ok, abandoned, or the code of the error that ended it.
        error: the error in words; empty without one.
        rows: that were answered, whose bytes are as they lay in memory.
        reads: of the cubes; those that another statement made are counted with that one.
    """

    outcome: str = OK
    error: str = ""
    took_s: float = 0.0
    rows: int = 0
    result_bytes: int = 0
    reads: list[ReadStats] = field(default_factory=list)


@dataclass(frozen=True)
class Entry:
    """A finished statement."""

    asked: Asked
    started_ms: int
    ended: Ended

    def shown(self, text: str, error: str) -> Entry:
        """Return the entry with other words for what was asked, and for its error."""
        return Entry(replace(self.asked, text=text), self.started_ms, replace(self.ended, error=error))


def batch_of(rows: Iterable[Row]) -> pa.RecordBatch:
    """Return rows of SCHEMA; there is at least one."""
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA)


def row_of(entry: Entry, service: str) -> Row:
    """Return the values of an entry in the order of SCHEMA. Arrow takes its texts, though a client may send
    halves of characters."""
    asked, ended = entry.asked, entry.ended
    elapsed_ms = ended.took_s * 1000
    segments = pruned = receivers = rows_read = rows = size = files = spilled = 0
    fetch_ms = 0.0
    for stats in ended.reads:  # one loop: an entry is made for each statement, most of which read one cube
        segments += len(stats.history_segments)
        pruned += len(stats.pruned_segments)
        receivers += len(stats.receivers)
        fetch_ms += stats.fetch_ms
        if stats.is_own:
            rows_read += stats.rows_read
            rows += stats.partial_rows
            size += stats.partial_bytes
            files += stats.files_cached + stats.files_remote
            spilled += stats.spilled_bytes
    return (
        int((entry.started_ms + elapsed_ms) * 1000),
        entry.started_ms * 1000,
        service,
        _whole(asked.user),
        asked.door,
        _whole(asked.database),
        _whole(asked.text),
        ended.outcome,
        _whole(ended.error),
        elapsed_ms,
        ended.rows,
        ended.result_bytes,
        ",".join(sorted({stats.cube for stats in ended.reads})),
        msgspec.json.encode([_read(stats) for stats in ended.reads]).decode(),
        ",".join(sorted({stats.engine for stats in ended.reads if stats.engine})),
        segments,
        pruned,
        receivers,
        rows_read,
        rows,
        size,
        files,
        spilled,
        fetch_ms,
        asked.statement_id,
    )


def _whole(text: str) -> str:
    return text if text.isascii() else text.encode(errors="replace").decode()


def _read(stats: ReadStats) -> dict[str, Any]:
    """Return what a choice of cuboids needs to know of a read."""
    return {
        "cube": stats.cube,
        "dimensions": list(stats.dimensions),
        "cuboids": stats.cuboids,
        "realtime_cuboids": stats.realtime_cuboids,
        "rows_read": stats.rows_read,
        "shared": not stats.is_own,
    }
