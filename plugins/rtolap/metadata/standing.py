"""Finds the segments that have a version which statements may read: a pure function of a cube's records."""

from __future__ import annotations

from collections.abc import Mapping

from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.model.segment import SegmentState


def standing(control: CubeControl, records: Mapping[str, SegmentRecord]) -> list[SegmentRecord]:
    """All with a READY version beyond the purge horizon, whatever else the segment is doing."""
    return [
        record
        for record in records.values()
        if record.version > 0
        and record.state is not SegmentState.PURGED
        and (control.horizon_ms is None or record.end_ms > control.horizon_ms)
    ]
