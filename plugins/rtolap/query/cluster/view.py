"""The query service's cached view of the cluster: definitions, segments, receivers, stored tables.

While ZooKeeper does not answer, the last known view is used: nothing is promoted or purged meanwhile, and a
receiver that has gone further than a snapshot reports so. Nor do cubes wait for a frontend that does not
answer.
"""

from __future__ import annotations

import logging
import threading

from rtolap.base.clock import Clock
from rtolap.base.errors import RtolapError
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.metadata.updates import read_each
from rtolap.metadata.view import SegmentView
from rtolap.model.evolution.revisions import numbered, seen_cubes, series_of
from rtolap.protocols.stored_tables.messages import TableInfo
from rtolap.query.catalogue import QueryCatalogue, relation_key
from rtolap.query.cluster.remembered import Remembered
from rtolap.query.cluster.topology import ReceiverTopology
from rtolap.query.stored.source import StoredSource

log = logging.getLogger(__name__)

CACHE_S = 1.0  # what is cached changes rarely; an error makes the service look again at once
AWAY_S = 5.0  # a frontend that did not answer is not called again before


class Listing:
    """The list of stored tables, fetched again after a while.

    Thread-safe. While no frontend answers the tables known last stay; reading one raises what is wrong."""

    def __init__(self, source: StoredSource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._tables: dict[str, TableInfo] = {}
        self._databases: tuple[str, ...] = ()
        self._next_s = 0.0
        self._failure: str | None = None

    @property
    def failure(self) -> str | None:
        """Return why the tables could not be listed the last time."""
        return self._failure

    @property
    def databases(self) -> tuple[str, ...]:
        """Return the databases that existed when the tables were last listed."""
        return self._databases

    def tables(self, *, fresh: bool = False) -> dict[str, TableInfo]:
        """Return the tables by `relation_key`; the same object as long as nothing has changed."""
        with self._lock:
            recent = self._clock.monotonic_s() < self._next_s
            if recent and (not fresh or self._failure is not None):
                return self._tables
            try:
                tables = {relation_key(table.db, table.name): table for table in self._source.tables()}
                self._databases = self._source.databases()
            except RtolapError as error:
                if self._failure is None:
                    log.warning("stored tables cannot be listed: %s", error)
                self._failure = str(error)
                self._next_s = self._clock.monotonic_s() + AWAY_S
                return self._tables
            self._failure = None
            self._next_s = self._clock.monotonic_s() + CACHE_S
            if tables != self._tables:
                self._tables = tables
            return self._tables

    def forget(self) -> None:
        """Make the next call look again: this service has changed a definition."""
        with self._lock:
            self._next_s = 0.0


class Cluster:
    """The cluster as this service sees it. It is thread-safe."""

    def __init__(self, metadata: ClusterMetadata, clock: Clock, stored: Listing | None = None) -> None:
        self._stored = stored
        self._metadata = metadata
        self._lock = threading.Lock()
        self._views: dict[str, SegmentView] = {}
        self._shown: QueryCatalogue | None = None
        self._catalogue = Remembered("catalogue", self._look_catalogue, clock, max_age_s=CACHE_S)
        self._topology = Remembered("topology", self._look_topology, clock, max_age_s=CACHE_S)

    def catalogue(self, *, fresh: bool = False) -> QueryCatalogue:
        """Return the same object as long as nothing has changed: what was made for it stays good."""
        catalogue = self._catalogue.get(fresh=fresh)
        with self._lock:
            gone = [self._views.pop(name) for name in self._views.keys() - catalogue.own_cubes]
        for view in gone:
            view.close()
        return catalogue

    def topology(self, *, fresh: bool = False) -> ReceiverTopology:
        return self._topology.get(fresh=fresh)

    def view(self, cube: str) -> SegmentView:
        with self._lock:
            view = self._views.get(cube)
        if view is not None:
            return view
        made = SegmentView(self._metadata, cube, by_page=True)
        with self._lock:
            current = self._views.setdefault(cube, made)
        if current is not made:
            made.close()
        return current

    def snapshots(self) -> dict[str, tuple[CubeControl, dict[str, SegmentRecord]]]:
        """Return control and all segment records of every cube whose records can be read. Open a view of each
        cube that has none."""
        return read_each(sorted(self.catalogue().own_cubes), lambda cube: self.view(cube).snapshot()).found

    def close(self) -> None:
        self._catalogue.close()
        self._topology.close()
        with self._lock:
            views, self._views = list(self._views.values()), {}
        for view in views:
            view.close()

    def _look_catalogue(self) -> QueryCatalogue:
        schemas, unreadable = read_each(self._metadata.cubes(), self._metadata.schema)
        lookups, unreadable_lookups = read_each(self._metadata.lookups(), self._metadata.lookup)
        # The others of a series would answer without the events of the one that cannot be read.
        partial = {numbered(name)[0]: error for name, error in unreadable.items()}
        cubes = {name: schema for name, schema in schemas.items() if numbered(name)[0] not in partial}
        revisions = series_of(cubes)
        catalogue = QueryCatalogue(
            cubes=seen_cubes(cubes, revisions),
            revisions=revisions,
            lookups=lookups,
            stored={} if self._stored is None else self._stored.tables(fresh=True),
            created=() if self._stored is None else self._stored.databases,
            unreadable={
                name: str(error) for name, error in {**partial, **unreadable, **unreadable_lookups}.items()
            },
        )
        if self._shown is None or self._shown != catalogue:
            self._shown = catalogue
        return self._shown

    def _look_topology(self) -> ReceiverTopology:
        return ReceiverTopology(
            self._metadata.receivers(),
            self._metadata.readable_replica_sets(),
            frozenset(self._metadata.live_receivers()),
        )
