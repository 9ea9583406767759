"""The query service's cached view of the cluster: definitions, segments, receivers, stored tables.

While ZooKeeper does not answer, the last known view is used: nothing is promoted or purged meanwhile, and a
receiver that has gone further than a snapshot reports so. Nor do cubes wait for a frontend that does not
answer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from rtolap.base.clock import Clock
from rtolap.base.closeable import Closeable
from rtolap.base.errors import NotFound, RtolapError, Unavailable
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.metadata.updates import genuine
from rtolap.metadata.view import SegmentView
from rtolap.protocols.stored_tables.messages import TableInfo
from rtolap.query.catalogue import Catalogue, relation_key
from rtolap.query.cubes.planner import Topology
from rtolap.query.stored.source import StoredSource

log = logging.getLogger(__name__)

T = TypeVar("T")

CACHE_S = 1.0  # what is cached changes rarely; an error makes the service look again at once
WAIT_S_MAX = 0.5  # what one statement waits for a newer value while an older one is at hand
AWAY_S = 5.0  # a frontend that did not answer is not called again before


class Remembered(Closeable, Generic[T]):
    """A value that is looked up elsewhere: no caller waits long for a newer one while one is known.

    Thread-safe. `look` runs on a thread of its own, once at a time however many ask.

    A value older than `max_age_s` is looked up again. Who asks waits for it at most `wait_s_max`, and not at
    all for a look that a caller has already waited so long for: until it ends, the value known last is given.
    """

    def __init__(
        self,
        name: str,
        look: Callable[[], T],
        clock: Clock,
        *,
        max_age_s: float,
        wait_s_max: float = WAIT_S_MAX,
    ) -> None:
        self._name = name
        self._look = look
        self._clock = clock
        self._max_age_s = max_age_s
        self._wait_s_max = wait_s_max
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"look-{name}")
        self._known: tuple[float, T] | None = None  # (when its look began, monotonic seconds; the value)
        self._newest: Future[T] | None = None
        self._slow: Future[T] | None = None

    def get(self, *, fresh: bool = False) -> T:
        """`fresh`: of a look that begins after the call, where it ends in time.

        Raises what `look` raises, but for Unavailable while a value is known.
        """
        with self._lock:
            known = self._known
            if known is not None and not fresh and self._clock.monotonic_s() - known[0] < self._max_age_s:
                return known[1]
            look = self._newest
            if look is None or look.done() or (fresh and look.running()):
                look = self._newest = self._thread.submit(self._run)
            if known is not None and not fresh and look is self._slow:
                return known[1]
        try:
            return look.result(None if known is None else self._wait_s_max)
        except TimeoutError:
            if known is None:
                raise
            with self._lock:
                if self._slow is not look:
                    log.warning("%s: no answer within %g s, the last one stays", self._name, self._wait_s_max)
                self._slow = look
            return known[1]
        except Unavailable as error:
            if known is None:
                raise
            log.warning("%s: the last one stays: %s", self._name, error)
            return known[1]

    def close(self) -> None:
        """Does not wait for a look under way."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> T:
        began_s = self._clock.monotonic_s()
        value = self._look()
        with self._lock:
            self._known = (began_s, value)
        return value


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
        """As they were when the tables were listed."""
        return self._databases

    def tables(self, *, fresh: bool = False) -> dict[str, TableInfo]:
        """By `relation_key`. The same object as long as nothing has changed."""
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
        """Look again with the next call: a definition has been changed from here."""
        with self._lock:
            self._next_s = 0.0


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
            cubes=genuine(self._metadata.cubes(), self._metadata.schema),
            lookups=genuine(self._metadata.lookups(), self._metadata.lookup),
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
