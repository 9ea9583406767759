"""A pinned version of a tablet: as long as it is open, nothing that it reads is deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from rtolap.base.closeable import Closeable
from rtolap.base.errors import Refused
from rtolap.model.predicate import Predicate
from rtolap.model.stored.schema import StoredSchema
from rtolap.stored.engine.records import Rowset
from rtolap.stored.engine.scan import View, scan
from rtolap.stored.engine.settings import TabletSettings


class Snapshot(Closeable):
    """Reads as often as wanted, by several threads; `close` unpins. A context manager."""

    def __init__(
        self,
        version: int,
        schema: StoredSchema,
        rowsets: Sequence[Rowset],
        views: Sequence[View],
        settings: TabletSettings,
        unpin: Callable[[], None],
    ) -> None:
        self.version, self.schema, self.rowsets = version, schema, tuple(rowsets)
        self._views, self._settings, self._unpin = tuple(views), settings, unpin
        self._open = True

    def by_rowset(self) -> Iterator[tuple[Rowset, tuple[View, ...]]]:
        """Files as this version sees them, in order of version."""
        at = 0
        for rowset in self.rowsets:
            yield rowset, self._views[at : at + len(rowset.files)]
            at += len(rowset.files)

    def read(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        schema: StoredSchema | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows that are kept, merged by the model; batches without an order among them.

        `schema`: of this table, older or newer, whose names and columns count; by default the tablet's own.
        NotFound for an unknown column, QueryError for values that do not compare with theirs.
        """
        if not self._open:
            raise Refused(f"version {self.version} is no longer pinned", action="pin it again")
        return scan(self._views, schema or self.schema, columns, predicate, self._settings)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._unpin()
