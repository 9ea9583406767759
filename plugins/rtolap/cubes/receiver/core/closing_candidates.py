"""The core's knowledge, put together for `rules.decide`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rtolap.base.clock import Clock
from rtolap.cubes.receiver import closing_rules as closing
from rtolap.cubes.receiver.closing_rules import Takeover
from rtolap.cubes.receiver.core.partition_progress import ConsumerProgress
from rtolap.cubes.receiver.local.tables import LocalState
from rtolap.cubes.receiver.views import CubeView
from rtolap.model.cube import Schema
from rtolap.model.offsets import Offsets


def due(
    schema: Schema,
    view: CubeView,
    state: LocalState,
    progress: ConsumerProgress,
    clock: Clock,
    *,
    caught_up: bool,
    force: Collection[int],
) -> tuple[closing.SegmentClosing, ...]:
    """Return the segments to close now, when this receiver leads. Offsets are this state's positions.

    Raises Unavailable where a segment with local data is settled and cannot be read.
    """
    if not (view.leading and view.connected and state.positions):
        return ()
    now_s = clock.monotonic_s()
    now_ms = round(now_s * 1000)  # nobody sets it: late events wait for as long as they should
    own = {
        p: (
            counters.watermark_ms if (counters := progress.counters.get(p)) is not None else None,
            progress.idle(state.positions, p, now_s),
        )
        for p in state.positions
    }
    decided = closing.decide(
        schema.cube,
        positions=state.positions,
        local=state.segments.keys(),
        records=view.with_local(state.segments),
        marks=progress.marks(state, now_ms),
        low_watermark_ms=closing.low_watermark(view.low_watermark_ms, own),
        caught_up=caught_up,
        now_ms=now_ms,
        force=frozenset(force),
        force_before_ms=view.control.close_before_ms,
        application=closing.ByApplication(view.windows, _takeover(view), view.control.close_completeness),
    )
    return tuple(replace(one, epochs=_epochs(state, one.vector)) for one in decided)


def _epochs(state: LocalState, vector: Offsets) -> Offsets:
    known = {p: state.epochs[p].epoch_below(offset) for p, offset in vector.items() if p in state.epochs}
    return {p: epoch for p, epoch in known.items() if epoch is not None}


def _takeover(view: CubeView) -> Takeover | None:
    """Return the takeover if it is of this very term and assignment."""
    takeover = view.takeover
    return takeover if takeover is not None and takeover.generation == view.generation else None


def late_before(schema: Schema, state: LocalState, before_ms: int | None) -> set[int]:
    """Return segments with a late delta that a new forced closing includes."""
    window_ms = schema.cube.segment.window_ms
    return {
        start
        for start in state.segments
        if before_ms is not None and start + window_ms <= before_ms and state.version(start) > 0
    }
