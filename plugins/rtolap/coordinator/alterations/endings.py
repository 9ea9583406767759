"""The end of older revisions: receivers stop, statements leave them out, and they are dropped.

Each step is one commit of what `model.evolution.revision_life` says is due, so a crash leaves a state of its
table, and the next look goes on. A step is taken by what was read, and what it rests on never turns back: a
purge horizon only rises, and of a segment with a version nothing late is accepted where late events are
dropped.

1. the control is `ended`, assigned to nobody   crash before: it reads on; after it: receivers end its runners
2. the definition is `retired`                  crash before: statements read a revision without a segment
3. the cube is disabled, and dropped            crash: a retired revision, which the repetition drops
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from rtolap.coordinator.assignment import Assignments
from rtolap.coordinator.purge import GRACE_MS
from rtolap.coordinator.views import Views
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.publications import Publications
from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.model.cube import Cube
from rtolap.model.evolution.revision_life import (
    RevisionAction,
    RevisionEvent,
    RevisionState,
    Standing,
    accepts_nothing,
    due_event,
    is_purged,
    transition,
)
from rtolap.model.segment import SegmentState

log = logging.getLogger(__name__)


class Endings:
    """`drop` drops a disabled cube with all that it has. `grace_ms`: a statement that began before a
    retirement may read for so long."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        views: Views,
        assignments: Assignments,
        drop: Callable[[str], None],
        *,
        grace_ms: int = GRACE_MS,
    ) -> None:
        self._metadata = metadata
        self._views = views
        self._assignments = assignments
        self._drop = drop
        self._grace_ms = grace_ms
        self._publications = Publications(metadata.store)

    def run(self, name: str, *, drops: bool = False) -> RevisionState | None:
        """Take the steps that are due, and return the state; None of a cube that is no older revision.

        `drops`: the last step may be taken too. Raises NotFound without the cube.
        """
        while True:
            *_, cube = before = self._series(name)
            following = self._metadata.revisions(name)[1:]
            if not following or following[0].revision is None or following[0].revision.since_ms is None:
                return None
            standing = self._standing(cube, following[0].revision.since_ms, is_oldest=len(before) == 1)
            event = due_event(standing)
            if event is None or (event is RevisionEvent.DROP and not drops):
                return standing.state
            taken = transition(standing.state, event, subject=f"revision {name}")
            self._take(cube, taken.action)
            log.info("cube %s: %s → %s", name, standing.state, taken.state)
            if taken.state is RevisionState.DROPPED:
                return taken.state

    def _series(self, name: str) -> tuple[Cube, ...]:
        """Return the revisions that stand up to this one, oldest first."""
        cube = self._metadata.cube(name)
        if cube.revision is None:
            return (cube,)
        number = cube.revision.number
        found = self._metadata.revisions(cube.revision.of)
        return tuple(each for each in found if each.revision is not None and each.revision.number <= number)

    def _standing(self, cube: Cube, until_ms: int, *, is_oldest: bool) -> Standing:
        control, records = self._views.fresh(cube.name)
        horizon_ms = control.horizon_ms
        within = [
            record
            for record in records.values()
            if record.start_ms < until_ms and (horizon_ms is None or record.end_ms > horizon_ms)
        ]
        built = {record.start_ms for record in within if record.version}
        retired_ms = None if cube.revision is None else cube.revision.retired_ms
        return Standing(
            ended=control.ended,
            retired=retired_ms is not None,
            accepts_nothing=accepts_nothing(cube, until_ms, horizon_ms, built),
            needs_receivers=any(_needs_receivers(record) for record in within),
            is_purged=is_purged(until_ms, horizon_ms),
            is_oldest=is_oldest,
            is_held=retired_ms is not None and self._is_held(cube.name, retired_ms),
        )

    def _is_held(self, name: str, retired_ms: int) -> bool:
        young = self._metadata.clock.now_ms() - retired_ms < self._grace_ms
        return young or bool(self._publications.of_cube(name))

    def _take(self, cube: Cube, action: RevisionAction) -> None:
        match action:
            case RevisionAction.RELEASE_PARTITIONS:
                self._assignments.release(cube.name, self._metadata.cube_id(cube.name))
            case RevisionAction.ASSIGN_PARTITIONS:
                self._assignments.assign_again(cube.name)
            case RevisionAction.LEAVE_STATEMENTS:
                assert cube.revision is not None, "one that another follows is a revision"
                now_ms = self._metadata.clock.now_ms()
                retired = msgspec.structs.replace(cube.revision, retired_ms=now_ms)
                after = msgspec.structs.replace(cube, revision=retired)
                self._metadata.change_cube(cube, after, self._metadata.cube_id(cube.name))
            case RevisionAction.DROP_CUBE:
                self._metadata.update_control(cube.name, _disabled)
                self._drop(cube.name)


def _disabled(control: CubeControl) -> CubeControl:
    return msgspec.structs.replace(control, enabled=False)


def _needs_receivers(record: SegmentRecord) -> bool:
    """Return True unless the segment is wholly in history, or what its next version lacks is staged."""
    if record.state in (SegmentState.READY, SegmentState.REMOTE_PERSISTED):
        return record.version == 0 or record.base_lost
    return record.state is not SegmentState.PURGED
