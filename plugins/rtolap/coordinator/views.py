"""A SegmentView per cube, made when it is first needed and closed when the cube is gone."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from rtolap.base.errors import Corrupted, Forged, NotFound
from rtolap.base.ids import CarryingPool
from rtolap.metadata import paths
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.metadata.view import SegmentView

log = logging.getLogger(__name__)

LOOKS_AT_ONCE = 16  # cubes whose records are read beside each other

T = TypeVar("T")


class Views:
    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata
        self._lock = threading.Lock()
        self._views: dict[str, SegmentView] = {}

    def fresh(self, cube: str, *, is_synced: bool = False) -> tuple[CubeControl, dict[str, SegmentRecord]]:
        """Return the control and the records, not older than the call. Raises NotFound if there is no such
        cube. `is_synced`: not older than the last `sync` of the store, which a look at many cubes begins
        with."""
        return self.fresh_creation(cube, is_synced=is_synced)[1:]

    def fresh_creation(
        self, cube: str, *, is_synced: bool = False
    ) -> tuple[str, CubeControl, dict[str, SegmentRecord]]:
        """Do as `fresh`, behind the id of the cube that it is of."""
        with self._lock:
            view = self._views.get(cube)
            if view is None:
                view = self._views[cube] = SegmentView(self._metadata, cube)
        if is_synced:
            view.reload()
        else:
            view.refresh()
        try:
            self._metadata.cube(cube)
        except NotFound:
            self.forget(cube)
            raise
        return view.identified()

    def of_all(self, look: Callable[[str], T]) -> list[T]:
        """Return what `look` returns for each cube that is there, by name: it may take what the store has
        for fresh (`is_synced`).

        Each takes several answers of ZooKeeper, so several are waited for at the same time. Cubes that are
        dropped meanwhile are left out, and those whose records are forged, which the store has counted and
        logged, or damaged: one cube's records keep nobody from the others.
        """
        store = self._metadata.store
        store.sync()

        def looked(cube: str) -> tuple[T, ...]:
            try:
                return (look(cube),)
            except (NotFound, Forged):
                return ()
            except Corrupted as error:
                log.warning("cube %s is left out: %s", cube, error)
                return ()

        with CarryingPool(LOOKS_AT_ONCE, thread_name_prefix="cubes") as looks:
            return [found for one in looks.map(looked, store.children(paths.CUBES)) for found in one]

    def open(self, cube: str) -> dict[str, SegmentRecord]:
        """Return the records with a node of their own, as its watches have brought them, none of a cube that
        was not requested; never waits."""
        with self._lock:
            view = self._views.get(cube)
        return {} if view is None else view.known()[1].open

    def watched(self) -> dict[str, dict[str, SegmentRecord]]:
        """Return records of every requested cube, as its watches have brought them; never waits."""
        with self._lock:
            return {cube: view.known()[1].within(None, None) for cube, view in self._views.items()}

    def forget(self, cube: str) -> None:
        with self._lock:
            view = self._views.pop(cube, None)
        if view is not None:
            view.close()

    def close(self) -> None:
        for cube in list(self._views):
            self.forget(cube)
