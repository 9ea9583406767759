"""The answer of a scan: the rows of a pinned version, or what the request makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from rtolap.columnar.pushed_schema import partials_schema
from rtolap.protocols.storage import messages as wire
from rtolap.stored.engine.group_rows import group_rows
from rtolap.stored.engine.rows.columns import read_schema
from rtolap.stored.engine.scan import TabletSnapshot
from rtolap.stored.engine.top_rows import top_rows


class ScanStream:
    """A `BatchStream` over a pinned version, which is unpinned when the batches end or are given up."""

    def __init__(self, snapshot: TabletSnapshot, request: wire.ScanRequest, *, shared: bool = False) -> None:
        """Prepare the stream.

        Args:
            shared: somebody else unpins the version.
        """
        columns = request.columns or request.schema.names
        rows = read_schema(request.schema, columns)
        partials = request.partials
        self.schema = rows if partials is None else partials_schema(request.schema, partials)
        self._snapshot, self._shared = snapshot, shared
        self._batches = self._read(request, columns, rows)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches

    def cancel(self) -> None:
        self._batches.close()
        self._unpin()

    def read_all(self) -> pa.Table:
        return pa.Table.from_batches(self, self.schema)

    def _read(
        self, request: wire.ScanRequest, columns: Iterable[str], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        try:
            rows = _cast(self._snapshot.read(tuple(columns), request.filter, request.schema), schema)
            if request.partials is not None:
                rows = group_rows(rows, request.schema, request.partials)
            elif request.top is not None:
                rows = top_rows(rows, request.top)
            yield from rows
        finally:
            self._unpin()

    def _unpin(self) -> None:
        if not self._shared:
            self._snapshot.close()


def _cast(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.cast(schema) if batch.schema != schema else batch
