"""A small unique table, its tablets, rows of it, and what a node has of them."""

from __future__ import annotations

import pyarrow as pa
from rtolap.model.stored.schema import StoredSchema, initial_schema
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.protocols.storage.client import StorageNode
from rtolap.protocols.storage.messages import ScanRequest, TabletId

TABLE = StoredTable(
    database="d",
    name="t",
    model="unique",
    keys=("id",),
    columns=(StoredColumn("id", "bigint", nullable=False), StoredColumn("note", "string")),
)
SCHEMA = initial_schema(TABLE)


def tablet(bucket: int = 0, table_id: int = 1) -> TabletId:
    return TabletId(table_id, "d", "t", "all", bucket)


def rows(*ids: int, note: str = "x") -> pa.RecordBatch:
    return pa.record_batch(
        {"id": pa.array(ids, pa.int64()), "note": pa.array([note] * len(ids), pa.string())}
    )


def read(
    node: StorageNode, id: TabletId, version: int, schema: StoredSchema = SCHEMA
) -> list[tuple[object, ...]]:
    stream = node.scan(ScanRequest(id, schema, version))
    found = pa.Table.from_batches(list(stream), stream.schema)
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True), key=repr)
