"""Roll-up rows with a LIMIT: only as much of the cube is read as gives that many, the latest first.

A condition on a time dimension among the keys leaves whole groups out and never cuts one: the groups beyond a
threshold are complete, whatever lies before it. So the statement is run beyond the latest segment, then
beyond twice as many, until it has its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from rtolap.metadata.records import SegmentRecord
from rtolap.model.predicate import And, Compare
from rtolap.query.plan import CubeRead, LatestRows
from rtolap.query.sql.timeline import text
from rtolap.query.sql.timerange import time_range


def narrowed(read: CubeRead, latest: LatestRows, segments: Iterable[SegmentRecord]) -> Iterator[CubeRead]:
    """The read beyond 1, 2, 4, … of the latest segments, and at last as it is."""
    zone = ZoneInfo(read.schema.table.time.zone)
    starts_ms = sorted(
        (segment.start_ms for segment in segments if read.time.overlaps(segment.start_ms, segment.end_ms)),
        reverse=True,
    )
    count = 1
    while count < len(starts_ms):
        local = datetime.fromtimestamp(starts_ms[count - 1] / 1000, UTC).astimezone(zone).replace(tzinfo=None)
        beyond = Compare(latest.key, "ge", text(local))
        condition = beyond if read.filter is None else And((read.filter, beyond))
        yield replace(read, filter=condition, time=time_range(condition, read.schema))
        count *= 2
    yield read
