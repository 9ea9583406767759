"""Publication of low watermarks of cubes, and of what may close by them: persisted first."""

from __future__ import annotations

import logging
import threading

from rtolap.base.errors import NotFound, RtolapError, SessionLost, Unavailable
from rtolap.coordinator.closable import WINDOWS_KEPT, Closable, due_ends
from rtolap.coordinator.heartbeats import Heartbeats
from rtolap.coordinator.watermark import low_watermark_ms
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import WatermarkRecord
from rtolap.model.cube import Cube

log = logging.getLogger(__name__)


class Watermarks:
    """`tick` runs on the leader about once a second, which bounds the writes to one per cube and second.

    1. compute from the heartbeats,  crash: the next leader receives the same heartbeats; an application has
       or read the application's     persisted its watermark
    2. persist, never a smaller one  crash: the next leader starts from it
    3. tell receivers and sensors    no reader has seen anything that a later leader could take back
    """

    def __init__(self, metadata: ClusterMetadata, heartbeats: Heartbeats, closable: Closable) -> None:
        self._metadata = metadata
        self._heartbeats = heartbeats
        self._closable = closable
        self._lock = threading.Lock()
        self._published: dict[str, WatermarkRecord] = {}
        self._problems: dict[str, str] = {}

    def clear(self) -> None:
        with self._lock:
            self._published.clear()
            self._problems.clear()

    def forget(self, cube: str) -> None:
        with self._lock:
            self._published.pop(cube, None)
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

    def tick(self, cube: str) -> None:
        """Run the tick of every cube by itself: what is wrong with one becomes its problem. Raises NotFound
        where it is gone, and what is of no cube: SessionLost, Unavailable, NotLeader."""
        try:
            self._note(cube, self._tick(cube))
        except (NotFound, SessionLost, Unavailable):
            raise
        except RtolapError as error:
            self._note(cube, f"its watermark stands still: {error}")

    def _tick(self, cube: str) -> str | None:
        """Return the cube's problem, if it has one."""
        with self._lock:
            previous = self._published.get(cube)
        if previous is None:
            previous = self._metadata.published_watermark(cube)
        definition = self._metadata.cube(cube)
        problem = None
        if definition.watermark is None:
            wanted = self._by_partitions(cube, previous)
        else:
            wanted, problem = self._by_application(definition, previous)
        if wanted != previous:
            wanted = self._metadata.publish_watermark(cube, wanted)
        with self._lock:
            self._published[cube] = wanted
        return problem

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

    def _by_application(self, cube: Cube, previous: WatermarkRecord) -> tuple[WatermarkRecord, str | None]:
        """Return the watermark by the cube's application and the problem; without such an application the
        cube waits."""
        mark = cube.watermark
        assert mark is not None, "asked for cubes with an application only"
        try:
            standing = self._closable.standing(mark)
        except NotFound as error:
            return previous, f"its segments do not close: {error}"
        known = [ms for ms in (previous.low_watermark_ms, standing.watermark_ms) if ms is not None]
        decided_ms = previous.windows[-1].window_end_ms if previous.windows else None
        fresh = self._closable.decided(cube, standing, due_ends(cube.segment, standing, decided_ms))
        windows = (*previous.windows, *fresh)[-WINDOWS_KEPT:]
        return WatermarkRecord(max(known, default=None), windows), None
