"""What the query service knows of the cluster: definitions, segments, receivers; cached."""

from __future__ import annotations

import threading

from rtolap.base.clock import Clock
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.view import SegmentView
from rtolap.query.catalogue import Catalogue
from rtolap.query.planner import Topology
from rtolap.query.stored.listing import Listing

CACHE_S = 1.0  # definitions and receivers change rarely; an error makes the service look again at once


class Cluster:
    """Thread-safe."""

    def __init__(self, metadata: ClusterMetadata, clock: Clock, stored: Listing | None = None) -> None:
        self._stored = stored
        self._metadata = metadata
        self._clock = clock
        self._lock = threading.Lock()
        self._views: dict[str, SegmentView] = {}
        self._catalogue: tuple[float, Catalogue] | None = None
        self._topology: tuple[float, Topology] | None = None

    def catalogue(self, *, fresh: bool = False) -> Catalogue:
        now_s = self._clock.monotonic_s()
        with self._lock:
            if not fresh and self._catalogue is not None and now_s - self._catalogue[0] < CACHE_S:
                return self._catalogue[1]
        found = Catalogue(
            cubes={name: self._metadata.schema(name) for name in self._metadata.cubes()},
            lookups={name: self._metadata.lookup(name) for name in self._metadata.lookups()},
            stored={} if self._stored is None else self._stored.tables(fresh=fresh),
        )
        with self._lock:
            if self._catalogue is not None and self._catalogue[1] == found:
                found = self._catalogue[1]  # the same object: what was made for it stays good
            self._catalogue = (now_s, found)
            gone = [self._views.pop(name) for name in list(self._views) if name not in found.cubes]
        for view in gone:
            view.close()
        return found

    def topology(self, *, fresh: bool = False) -> Topology:
        now_s = self._clock.monotonic_s()
        with self._lock:
            if not fresh and self._topology is not None and now_s - self._topology[0] < CACHE_S:
                return self._topology[1]
        found = Topology(
            self._metadata.receivers(),
            self._metadata.replica_sets(),
            frozenset(self._metadata.live_receivers()),
        )
        with self._lock:
            self._topology = (now_s, found)
        return found

    def view(self, cube: str) -> SegmentView:
        with self._lock:
            view = self._views.get(cube)
        if view is not None:
            return view
        made = SegmentView(self._metadata, cube)
        with self._lock:
            kept = self._views.setdefault(cube, made)
        if kept is not made:
            made.close()
        return kept

    def close(self) -> None:
        with self._lock:
            views, self._views = list(self._views.values()), {}
        for view in views:
            view.close()
