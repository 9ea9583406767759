"""Commits of the closings that a leader's core requests: now and then, and few at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from rtolap.base.clock import Clock
from rtolap.base.errors import CommitConflict, Refused
from rtolap.cubes.receiver.ingest import CubeReceiver
from rtolap.cubes.receiver.upload import close_segment, leading_under
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.store import Election, Operation
from rtolap.model.cube import Schema

log = logging.getLogger(__name__)

EVERY_S = 0.2
CLOSINGS_MAX = 4  # commits a round: consuming waits for them


class ClosingCommits:
    """Used by the core thread. `by`: who closes, for the segment's state history."""

    def __init__(
        self,
        schema: Schema,
        core: CubeReceiver,
        *,
        by: str,
        metadata: ClusterMetadata,
        election: Election,
        clock: Clock,
    ) -> None:
        self._schema = schema
        self._core = core
        self._by = by
        self._metadata = metadata
        self._election = election
        self._clock = clock
        self._closed_at_s = float("-inf")

    def close_due(self) -> None:
        """Raises what committing raises, except where another leader has decided meanwhile."""
        now_s = self._clock.monotonic_s()
        if now_s - self._closed_at_s < EVERY_S:
            return
        self._closed_at_s = now_s
        for closing in self._core.closings()[:CLOSINGS_MAX]:
            by = f"{self._by}, {closing.why}"
            try:
                close_segment(self._metadata, self._schema, closing, by=by, require=self._requires())
            except (Refused, CommitConflict) as error:
                log.info(
                    "segment %d of %s is not closed now: %s", closing.start_ms, self._schema.cube.name, error
                )

    def _requires(self) -> Callable[[], Sequence[Operation]]:
        if self._schema.cube.watermark is None:
            return tuple
        epoch = self._core.assignment_epoch
        return leading_under(self._metadata, self._schema.cube.name, epoch, self._election)
