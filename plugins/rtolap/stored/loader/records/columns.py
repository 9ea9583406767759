"""The table's columns as they are now: looked at again and again, so that changes need no restart."""

from __future__ import annotations

import threading

from rtolap.base.errors import NotFound
from rtolap.model.loader import Loader
from rtolap.stored.loader.sinks.interface import Sink
from rtolap.stored.loader.states import StopCause, Stopped
from rtolap.stored.loader.target import Target, target_of


class Columns:
    """Thread-safe. `refresh` raises the sink's errors, and Stopped for a table that cannot be loaded."""

    def __init__(self, sink: Sink, loader: Loader) -> None:
        self._sink = sink
        self._loader = loader
        self._lock = threading.Lock()
        self._target: Target | None = None

    @property
    def target(self) -> Target:
        with self._lock:
            assert self._target is not None, "refreshed before anything is loaded"
            return self._target

    def refresh(self) -> bool:
        """Read the columns again; return True if anything has changed."""
        loader = self._loader
        try:
            schema = self._sink.schema(loader.database, loader.table)
        except NotFound as error:
            raise Stopped(StopCause.TABLE_UNUSABLE, str(error)) from error
        target = target_of(loader, schema)
        with self._lock:
            changed, self._target = self._target != target, target
        return changed
