"""The log of one query service."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from rtolap.base.metrics import Metrics
from rtolap.query.query_log.entries import SCHEMA, Entry, Row, batch_of, row_of
from rtolap.query.query_log.folder import LogFolder
from rtolap.query.query_log.texts import without_values

log = logging.getLogger(__name__)

Texts = Literal["full", "without_values", "none"]
WRITE_S = 5.0  # between batches: what a killed service loses of its log, at most
WAITING_MAX = 5_000  # entries that are not written yet; beyond, the oldest are dropped and counted
WRITE_ENTRIES = 1_000  # that are written before WRITE_S is over
_ERROR_CHARACTERS_MAX = 500


class QueryLog:
    """Entries of finished statements. Thread-safe.

    Args:
        folder: None: the newest WAITING_MAX entries are kept in memory alone.
        texts: how the texts of statements are kept. Errors name parts of their statement: without values
            there are none either.

    Attributes:
        dropped: number of entries that no file has taken, and that are forgotten.
    """

    def __init__(self, folder: LogFolder | None = None, *, service: str = "", texts: Texts = "full") -> None:
        self._folder = folder
        self._service = service
        self._texts = texts
        self._changed = threading.Condition()
        self._waiting: deque[Row] = deque(maxlen=WAITING_MAX)
        self._is_closed = False
        self._writes = threading.Lock()  # held while entries go from `_waiting` to a file
        self.dropped = 0
        self._failed = False
        self._thread: threading.Thread | None = None
        if folder is not None:
            self._thread = threading.Thread(target=self._run, name="query-log", daemon=True)
            self._thread.start()

    def note(self, entry: Entry) -> None:
        """Keep the entry, as a row: what it holds of the statement's reads may be large. Harmless after
        `close`."""
        row = row_of(_SHOWN[self._texts](entry), self._service)
        with self._changed:
            self.dropped += self._folder is not None and len(self._waiting) == WAITING_MAX
            self._waiting.append(row)
            if len(self._waiting) == WRITE_ENTRIES:
                self._changed.notify()

    def table(self, user: str) -> pa.Table:
        """Return the entries of a user, the oldest first; of all users where the name is empty.

        What has been noted before the call is in it.
        """
        with self._writes:
            with self._changed:
                waiting = list(self._waiting)
            written = [] if self._folder is None else list(self._folder.batches())
        found = written + ([batch_of(waiting)] if waiting else [])
        table = pa.Table.from_batches(found, SCHEMA)
        return table.filter(pc.equal(table["USER_NAME"], user)) if user else table

    def write(self) -> None:
        """Write what has been noted, and remove what is too old. Entries stay where the disk refuses them."""
        if self._folder is None:
            return
        with self._writes:
            with self._changed:
                waiting = list(self._waiting)
            try:
                if waiting:
                    self._folder.append(batch_of(waiting))
                    with self._changed:
                        self._forget(waiting)
                self._folder.expire()
                self._failed = False
            except OSError as error:
                if not self._failed:
                    log.warning("the query log cannot be written: %s", error)
                self._failed = True

    def close(self) -> None:
        """Write the rest, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            self.write()
        if self._folder is not None:
            try:
                self._folder.close()
            except OSError as error:
                log.warning("the query log cannot be closed: %s", error)

    def follow(self, registry: Metrics) -> None:
        """Sample what was dropped at each scrape."""
        registry.sampled(lambda: [registry.value("query_log_dropped", self.dropped)])

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._has_many(), WRITE_S)
                if self._is_closed:
                    return
            self.write()

    def _has_many(self) -> bool:
        return len(self._waiting) >= WRITE_ENTRIES and not self._failed

    def _forget(self, written: list[Row]) -> None:
        """Drop from the front what is written; the front may have been dropped meanwhile."""
        done = set(map(id, written))
        while self._waiting and id(self._waiting[0]) in done:
            self._waiting.popleft()


def _with_text(entry: Entry) -> Entry:
    if len(entry.ended.error) <= _ERROR_CHARACTERS_MAX:
        return entry
    return entry.shown(entry.asked.text, entry.ended.error[:_ERROR_CHARACTERS_MAX])


def _without_values(entry: Entry) -> Entry:
    return entry.shown(without_values(entry.asked.text), "")


def _without_text(entry: Entry) -> Entry:
    return entry.shown("", "")


_SHOWN: Mapping[Texts, Callable[[Entry], Entry]] = {
    "full": _with_text,
    "without_values": _without_values,
    "none": _without_text,
}
