"""Publication of low watermarks of cubes, and of what may close by them: persisted first."""

from __future__ import annotations

import logging
import threading
from typing import NamedTuple

from rtolap.base.errors import NotFound, RtolapError, SessionLost, Unavailable
from rtolap.coordinator.applications.running import RunningApplication
from rtolap.coordinator.closable import WINDOWS_KEPT, Closable, due_ends, standing_of
from rtolap.coordinator.heartbeats import Heartbeats
from rtolap.coordinator.leadership import FencedStore
from rtolap.coordinator.watermark import low_watermark_ms
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import WatermarkRecord
from rtolap.model.application import CubeWatermark
from rtolap.model.cube import Cube

log = logging.getLogger(__name__)


class _Decided(NamedTuple):
    """The epoch of the application in which a cube's windows were decided here, and the cube's creation."""

    epoch: int
    cube_id: str


class Watermarks:
    """`tick` runs about once a second, which bounds the writes to one per cube and second: on the leader for
    every cube, and on the owner of an application for the cubes that close by it.

    1. compute from the heartbeats,  crash: the next leader receives the same heartbeats; an application has
       or read the application's     persisted its watermark
    2. persist, never a smaller one  crash: the next leader, or owner, starts from it
    3. tell receivers and sensors    no reader has seen anything that a later leader could take back

    The leader tells, so it reads what owners have persisted. `owned`: the metadata as an owner may change it,
    the leader or not.
    """

    def __init__(
        self,
        metadata: ClusterMetadata,
        heartbeats: Heartbeats,
        closable: Closable,
        owned: ClusterMetadata | None = None,
    ) -> None:
        self._metadata = metadata
        self._owned = metadata if owned is None else owned
        self._heartbeats = heartbeats
        self._closable = closable
        self._lock = threading.Lock()
        self._published: dict[str, WatermarkRecord] = {}
        self._decided: dict[str, _Decided] = {}
        self._problems: dict[str, str] = {}

    def clear(self) -> None:
        with self._lock:
            self._published.clear()
            self._decided.clear()
            self._problems.clear()

    def forget(self, cube: str) -> None:
        with self._lock:
            self._published.pop(cube, None)
            self._decided.pop(cube, None)
            self._problems.pop(cube, None)

    def published_ms(self, cube: str) -> int | None:
        with self._lock:
            known = self._published.get(cube)
        return (self._metadata.published_watermark(cube) if known is None else known).low_watermark_ms

    def all_published(self) -> dict[str, WatermarkRecord]:
        with self._lock:
            return dict(self._published)

    def problem(self, cube: str) -> str | None:
        """Return why a cube's watermark stands still, or why its segments cannot close by its application at
        all."""
        with self._lock:
            return self._problems.get(cube)

    def tick(self, cube: str, *, leads: bool = True) -> None:
        """Run the tick of every cube by itself: what is wrong with one becomes its problem. Raises NotFound
        where it is gone, and what is of no cube: SessionLost, Unavailable, NotLeader."""
        try:
            self._note(cube, self._tick(cube, leads))
        except (NotFound, SessionLost, Unavailable):
            raise
        except RtolapError as error:
            self._note(cube, f"its watermark stands still: {error}")

    def _tick(self, cube: str, leads: bool) -> str | None:
        """Return the cube's problem, if it has one."""
        definition = self._metadata.cube(cube)
        if definition.watermark is not None:
            return self._tick_application(definition, definition.watermark, leads)
        if leads:
            previous = self._previous(cube)
            wanted = self._by_partitions(cube, previous)
            if wanted != previous:
                wanted = self._metadata.publish_watermark(cube, wanted)
            self._publish(cube, wanted)
        return None

    def _tick_application(self, cube: Cube, mark: CubeWatermark, leads: bool) -> str | None:
        """Without its application the cube waits."""
        problem = None
        try:
            running = self._closable.owned(mark)
        except NotFound as error:
            running, problem = None, f"its segments do not close: {error}"
        if running is not None:
            self._decide(cube, mark, running)
        elif leads:
            self._publish(cube.name, self._metadata.published_watermark(cube.name))
        return problem

    def _decide(self, cube: Cube, mark: CubeWatermark, running: RunningApplication) -> None:
        """Persist what may close, as the owner. What a former owner has decided, or what there is of another
        creation of the cube, is read first."""
        deciding = _Decided(running.epoch, self._metadata.cube_id(cube.name))
        with self._lock:
            goes_on = self._decided.get(cube.name) == deciding
        previous = self._previous(cube.name) if goes_on else self._metadata.published_watermark(cube.name)
        wanted = self._by_application(cube, mark, running, previous)
        if wanted != previous:
            metadata = self._as_owner(running)
            wanted = metadata.publish_watermark(cube.name, wanted, cube_id=deciding.cube_id)
        self._publish(cube.name, wanted, deciding)

    def _as_owner(self, running: RunningApplication) -> ClusterMetadata:
        """Return the metadata as it may be changed by the owner of this epoch, and by no later one."""
        owner = running.owner
        if owner is None:
            return self._owned
        return ClusterMetadata(FencedStore(self._owned.store, lambda: owner.node), self._owned.clock)

    def _previous(self, cube: str) -> WatermarkRecord:
        with self._lock:
            previous = self._published.get(cube)
        return self._metadata.published_watermark(cube) if previous is None else previous

    def _publish(self, cube: str, record: WatermarkRecord, decided: _Decided | None = None) -> None:
        with self._lock:
            self._published[cube] = record
            if decided is None:
                self._decided.pop(cube, None)
            else:
                self._decided[cube] = decided

    def _note(self, cube: str, problem: str | None) -> None:
        with self._lock:
            if problem is not None and self._problems.get(cube) != problem:
                log.warning("cube %s: %s", cube, problem)
            if problem is None:
                self._problems.pop(cube, None)
            else:
                self._problems[cube] = problem

    def _by_partitions(self, cube: str, previous: WatermarkRecord) -> WatermarkRecord:
        assignment = self._metadata.control(cube).assignment
        partitions = [p for assigned in assignment.values() for p in assigned]
        observations = self._heartbeats.observations(cube)
        return WatermarkRecord(low_watermark_ms(partitions, observations, previous.low_watermark_ms))

    def _by_application(
        self, cube: Cube, mark: CubeWatermark, running: RunningApplication, previous: WatermarkRecord
    ) -> WatermarkRecord:
        standing = standing_of(running, mark)
        known = [ms for ms in (previous.low_watermark_ms, standing.watermark_ms) if ms is not None]
        decided_ms = previous.windows[-1].window_end_ms if previous.windows else None
        due = due_ends(cube.segment, standing, decided_ms)
        windows = (*previous.windows, *self._closable.decided(cube, running, standing, due))[-WINDOWS_KEPT:]
        return WatermarkRecord(max(known, default=None), windows)
