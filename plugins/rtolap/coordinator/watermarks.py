"""Publishing low watermarks: persisted first, then told."""

from __future__ import annotations

import threading

from rtolap.coordinator.heartbeats import Heartbeats
from rtolap.coordinator.watermark import low_watermark_ms
from rtolap.metadata.cubes import ClusterMetadata


class Watermarks:
    """`tick` runs on the leader about once a second, which bounds the writes to one per cube and second.

    1. compute from the heartbeats   crash: the next leader hears the same heartbeats
    2. persist, never a smaller one  crash: the next leader starts from it
    3. tell receivers and sensors    nobody has been told anything that a later leader could take back
    """

    def __init__(self, metadata: ClusterMetadata, heartbeats: Heartbeats) -> None:
        self._metadata = metadata
        self._heartbeats = heartbeats
        self._lock = threading.Lock()
        self._published: dict[str, int] = {}

    def clear(self) -> None:
        with self._lock:
            self._published.clear()

    def forget(self, cube: str) -> None:
        with self._lock:
            self._published.pop(cube, None)

    def published_ms(self, cube: str) -> int | None:
        with self._lock:
            known = self._published.get(cube)
        return known if known is not None else self._metadata.published_watermark_ms(cube)

    def all_published_ms(self) -> dict[str, int]:
        with self._lock:
            return dict(self._published)

    def tick(self, cube: str) -> None:
        with self._lock:
            previous_ms = self._published.get(cube)
        if previous_ms is None:
            previous_ms = self._metadata.published_watermark_ms(cube)
        assignment = self._metadata.control(cube).assignment
        partitions = [p for assigned in assignment.values() for p in assigned]
        now_ms = low_watermark_ms(partitions, self._heartbeats.observations(cube), previous_ms)
        if now_ms is None:
            return
        if now_ms != previous_ms:
            now_ms = self._metadata.publish_watermark_ms(cube, now_ms)
        with self._lock:
            self._published[cube] = now_ms
