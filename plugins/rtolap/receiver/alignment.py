"""The whole local state after a new look at the records. Pure; the arithmetic is in `align`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rtolap.model.cube import Schema
from rtolap.model.offsets import Offsets
from rtolap.receiver.align import vectors_of
from rtolap.receiver.tables import LocalSegment, LocalState, realigned
from rtolap.receiver.view import CubeView


def aligned(schema: Schema, state: LocalState, view: CubeView, held: Collection[int]) -> LocalState:
    """Tables by the records' vectors; what is purged, covered or of a partition not `held` is dropped.

    What is said of a partition is forgotten as a whole: its position with its events.
    """
    drop_late = schema.cube.late.policy == "drop"
    horizon_ms = view.control.horizon_ms
    vectors = {start: vectors_of(record, drop_late=drop_late) for start, record in view.records.items()}
    changed: dict[int, LocalSegment] = {}
    for start, segment in state.segments.items():
        if horizon_ms is not None and start + schema.cube.segment.window_ms <= horizon_ms:
            changed[start] = LocalSegment(start)
        else:
            known = vectors.get(start, vectors_of(None, drop_late=drop_late))
            changed[start] = realigned(segment, known, held)
    return replace(
        state,
        positions={p: o for p, o in state.positions.items() if p in held},
        vectors=vectors,
        horizon_ms=horizon_ms,
        assignment_epoch=view.control.assignment_epoch,
    ).with_segments(changed)


def startable(state: LocalState, fresh: Collection[int], start_offsets: Offsets) -> set[int]:
    """Which of the partitions without a position may start. Not those of which a table has events of an
    earlier stay: they would be read a second time beside it."""
    left_over = {p for table in state.tables() for p in table.ranges} if fresh else set()
    return {p for p in fresh if p in start_offsets and p not in left_over}
