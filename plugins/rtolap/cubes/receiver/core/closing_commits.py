"""Commits of the closings that a leader's core requests: now and then, and few at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rtolap.base.clock import Clock
from rtolap.base.errors import CommitConflict, Refused
from rtolap.cubes.receiver.closing_rules import SegmentClosing
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.metadata import segments
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import SegmentRecord
from rtolap.metadata.store import Check, Election, Operation
from rtolap.model.cube import Schema
from rtolap.model.segment import SegmentRange

log = logging.getLogger(__name__)

EVERY_S = 0.2
CLOSINGS_MAX = 4  # commits a round: consuming waits for them


@dataclass(eq=False)
class ClosingCommits:
    """The commits of closing segments. The core thread uses them. `by`: who closes, for the segment's
    state history."""

    schema: Schema
    core: CubeReceiver
    cube_id: str
    by: str
    metadata: ClusterMetadata
    election: Election
    clock: Clock
    _closed_at_s: float = field(default=float("-inf"), init=False)

    def close_due(self) -> None:
        """Close the segments that are due. Raises what committing raises, except where another leader has
        decided meanwhile."""
        now_s = self.clock.monotonic_s()
        if now_s - self._closed_at_s < EVERY_S:
            return
        self._closed_at_s = now_s
        for closing in self.core.closings()[:CLOSINGS_MAX]:
            by = f"{self.by}, {closing.why}"
            try:
                close_segment(
                    *(self.metadata, self.schema, closing),
                    by=by,
                    cube_id=self.cube_id,
                    require=self._requires(),
                )
            except (Refused, CommitConflict) as error:
                log.info(
                    "segment %d of %s is not closed now: %s", closing.start_ms, self.schema.cube.name, error
                )

    def _requires(self) -> Callable[[], Sequence[Operation]]:
        if self.schema.cube.watermark is None:
            return tuple
        epoch = self.core.assignment_epoch
        return _leading_under(self.metadata, self.schema.cube.name, epoch, self.election)


def close_segment(
    metadata: ClusterMetadata,
    schema: Schema,
    closing: SegmentClosing,
    *,
    by: str,
    cube_id: str | None = None,
    require: Callable[[], Sequence[Operation]] = tuple,
) -> SegmentRecord:
    """Persist a closing vector. The first closing of a partition decides; the record holds it.

    `cube_id`: of the creation that the vector is of; None: of any. `require`: what has to hold in the same
    transaction, see `_leading_under`.
    """
    window = SegmentRange(closing.start_ms, closing.start_ms + schema.cube.segment.window_ms)

    def closed(record: SegmentRecord) -> SegmentRecord:
        return segments.close(
            record,
            closing.vector,
            version=closing.version,
            now_ms=metadata.clock.now_ms(),
            by=by,
            completeness=closing.completeness,
            epochs=closing.epochs,
        )

    return metadata.update_segment(schema.cube.name, window, closed, cube_id=cube_id, require=require)


def _leading_under(
    metadata: ClusterMetadata, cube: str, assignment_epoch: int, election: Election
) -> Callable[[], Sequence[Operation]]:
    """Return the requirements of a closing by an application: that this receiver leads, under that
    assignment.

    Otherwise another receiver may report by now, and have read further than this one.
    """

    def require() -> Sequence[Operation]:
        fence = election.fence()
        if fence is None:
            raise Refused("this receiver leads its replica set no more", action="its successor closes")
        return (Check(fence, -1), metadata.under_epoch(cube, assignment_epoch))

    return require
