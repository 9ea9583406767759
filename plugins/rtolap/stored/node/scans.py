"""The answer of a scan: the rows of a pinned version, or what the request makes of them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

import pyarrow as pa

from rtolap.protocols.storage import messages as wire
from rtolap.stored.engine.group_rows import group_rows
from rtolap.stored.engine.rows.columns import answer_schema, read_schema
from rtolap.stored.engine.scan import TabletSnapshot
from rtolap.stored.engine.top_rows import top_rows


class ScanStream:
    """A `BatchStream` over a pinned version, which is unpinned when the batches end or are given up."""

    def __init__(self, snapshot: TabletSnapshot, request: wire.ScanRequest) -> None:
        columns = request.columns or request.schema.names
        rows = read_schema(request.schema, columns)
        self.schema = answer_schema(request.schema, columns, request.partials)
        self._snapshot = snapshot
        self._batches = self._read(request, columns, rows)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches

    def cancel(self) -> None:
        self._batches.close()
        self._snapshot.close()

    def read_all(self) -> pa.Table:
        return pa.Table.from_batches(self, self.schema)

    def _read(
        self, request: wire.ScanRequest, columns: Iterable[str], schema: pa.Schema
    ) -> Generator[pa.RecordBatch, None, None]:
        try:
            rows = _cast(self._snapshot.read(tuple(columns), request.filter, request.schema), schema)
            if request.partials is not None:
                rows = group_rows(rows, request.schema, request.partials)
            elif request.top is not None:
                rows = top_rows(rows, request.top)
            yield from rows
        finally:
            self._snapshot.close()


def _cast(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.cast(schema) if batch.schema != schema else batch
