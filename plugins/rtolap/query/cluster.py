"""The query service's cached view of the cluster: definitions, segments, receivers.

While ZooKeeper does not answer, the last known view is used: nothing is promoted or purged meanwhile, and a
receiver that has gone further than a snapshot reports so.
"""

from __future__ import annotations

import threading

from rtolap.base.clock import Clock
from rtolap.base.errors import NotFound
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.metadata.view import SegmentView
from rtolap.query.catalogue import Catalogue
from rtolap.query.cubes.planner import Topology
from rtolap.query.remembered import Remembered
from rtolap.query.stored.listing import Listing

CACHE_S = 1.0  # definitions and receivers change rarely; an error makes the service look again at once


class Cluster:
    """Thread-safe."""

    def __init__(self, metadata: ClusterMetadata, clock: Clock, stored: Listing | None = None) -> None:
        self._stored = stored
        self._metadata = metadata
        self._lock = threading.Lock()
        self._views: dict[str, SegmentView] = {}
        self._shown: Catalogue | None = None
        self._catalogue = Remembered("catalogue", self._look_catalogue, clock, max_age_s=CACHE_S)
        self._topology = Remembered("topology", self._look_topology, clock, max_age_s=CACHE_S)

    def catalogue(self, *, fresh: bool = False) -> Catalogue:
        """The same object as long as nothing has changed: what was made for it stays good."""
        catalogue = self._catalogue.get(fresh=fresh)
        with self._lock:
            gone = [self._views.pop(name) for name in list(self._views) if name not in catalogue.cubes]
        for view in gone:
            view.close()
        return catalogue

    def topology(self, *, fresh: bool = False) -> Topology:
        return self._topology.get(fresh=fresh)

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

    def snapshots(self) -> dict[str, tuple[CubeControl, dict[str, SegmentRecord]]]:
        """Control and segment records of every cube; a view of each is kept from then on."""
        found = {}
        for cube in self.catalogue().cubes:
            try:
                found[cube] = self.view(cube).snapshot()
            except NotFound:  # dropped meanwhile
                continue
        return found

    def close(self) -> None:
        self._catalogue.close()
        self._topology.close()
        with self._lock:
            views, self._views = list(self._views.values()), {}
        for view in views:
            view.close()

    def _look_catalogue(self) -> Catalogue:
        catalogue = Catalogue(
            cubes={name: self._metadata.schema(name) for name in self._metadata.cubes()},
            lookups={name: self._metadata.lookup(name) for name in self._metadata.lookups()},
            stored={} if self._stored is None else self._stored.tables(fresh=True),
            created=() if self._stored is None else self._stored.databases,
        )
        if self._shown is None or self._shown != catalogue:
            self._shown = catalogue
        return self._shown

    def _look_topology(self) -> Topology:
        return Topology(
            self._metadata.receivers(),
            self._metadata.replica_sets(),
            frozenset(self._metadata.live_receivers()),
        )
