"""A SegmentView per cube, made when it is first needed and closed when the cube is gone."""

from __future__ import annotations

import threading

from rtolap.base.errors import NotFound
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.metadata.view import SegmentView


class Views:
    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata
        self._lock = threading.Lock()
        self._views: dict[str, SegmentView] = {}

    def fresh(self, cube: str) -> tuple[CubeControl, dict[str, SegmentRecord]]:
        """Return the control and the records, not older than the call. Raises NotFound if there is no such
        cube."""
        return self.fresh_creation(cube)[1:]

    def fresh_creation(self, cube: str) -> tuple[str, CubeControl, dict[str, SegmentRecord]]:
        """Do as `fresh`, behind the id of the cube that it is of."""
        with self._lock:
            view = self._views.get(cube)
            if view is None:
                view = self._views[cube] = SegmentView(self._metadata, cube)
        view.refresh()
        try:
            self._metadata.cube(cube)
        except NotFound:
            self.forget(cube)
            raise
        return view.identified()

    def watched(self) -> dict[str, dict[str, SegmentRecord]]:
        """Return records of every requested cube, as its watches have brought them; never waits."""
        with self._lock:
            return {cube: view.records() for cube, view in self._views.items()}

    def forget(self, cube: str) -> None:
        with self._lock:
            view = self._views.pop(cube, None)
        if view is not None:
            view.close()

    def close(self) -> None:
        for cube in list(self._views):
            self.forget(cube)
