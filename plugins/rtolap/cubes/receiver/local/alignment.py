"""The whole local state after a new look at the records. Pure; the arithmetic is in `align`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from rtolap.cubes.receiver.local.align import vectors_of
from rtolap.cubes.receiver.local.tables import LocalSegment, LocalState, LocalTable, realigned, substituted
from rtolap.cubes.receiver.views import CubeView
from rtolap.model.cube import Schema


def aligned(schema: Schema, state: LocalState, view: CubeView, held: Collection[int]) -> LocalState:
    """Tables by the records' vectors; what is purged, covered or of a partition not `held` is dropped.

    The state of a partition is forgotten as a whole: its position with its events.
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


def exchanged(
    schema: Schema,
    state: LocalState,
    start_ms: int,
    old: Collection[LocalTable],
    new: Sequence[LocalTable],
    held: Collection[int],
) -> LocalState | None:
    """Tables of a segment by others of the same events; None when `old` has changed meanwhile."""
    segment = state.segments.get(start_ms)
    after = substituted(segment, list(old), new) if segment is not None else None
    if after is None:
        return None
    no_record = vectors_of(None, drop_late=schema.cube.late.policy == "drop")
    vectors = state.vectors.get(start_ms, no_record)
    return state.with_segments({start_ms: realigned(after, vectors, held)})
