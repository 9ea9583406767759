"""History that goes on while statements read it: versions are replaced, the oldest segments are purged."""

from __future__ import annotations

import random

import msgspec
from rtolap.model.segment import SegmentRange

from tests.support.query.query_world import QueryWorld


class MovingHistory:
    """The history of the cube of flights. Files of what was replaced or purged go at once."""

    def __init__(self, world: QueryWorld) -> None:
        self._world = world
        self._rng = random.Random(5)
        self._versions = dict.fromkeys(world.built["flights"], 1)
        self._purged: set[str] = set()

    def _built(self) -> list[SegmentRange]:
        return [s for s in self._world.segments() if s.name in self._versions and s.name not in self._purged]

    def promote(self, segments: int = 3) -> None:
        for segment in self._rng.sample(self._built(), min(segments, len(self._built()))):
            old = self._versions[segment.name]
            self._versions[segment.name] = old + 1
            self._world.build(segment, self._rng, version=old + 1)
            self._world.store.delete_tree(f"history/flights/{segment.name}/v{old}-test")

    def purge(self, *, with_files: bool = True) -> None:
        first = self._built()[0]
        self._world.metadata.update_control(
            "flights", lambda control: msgspec.structs.replace(control, horizon_ms=first.end_ms)
        )
        self._purged.add(first.name)
        if with_files:
            self._world.store.delete_tree(f"history/flights/{first.name}")
