"""The list of stored tables, fetched again after a while; cubes never wait for a frontend that does not
answer."""

from __future__ import annotations

import logging
import threading

from rtolap.base.clock import Clock
from rtolap.base.errors import RtolapError
from rtolap.protocols.stored_tables.messages import TableInfo
from rtolap.query.stored.relation import relation_key
from rtolap.query.stored.source import StoredSource

log = logging.getLogger(__name__)

CACHE_S = 1.0
AWAY_S = 5.0  # a frontend that did not answer is not called again before


class Listing:
    """Thread-safe. While no frontend answers the tables known last stay; reading one raises what is wrong."""

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
