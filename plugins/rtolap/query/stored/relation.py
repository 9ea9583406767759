"""A stored table as a relation of SQL."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from rtolap.columnar.schema import arrow_type
from rtolap.model.stored.schema import StoredSchema
from rtolap.model.types import ColumnType
from rtolap.protocols.stored_tables.messages import TableInfo


def relation_key(db: str, name: str) -> str:
    """Return the table's name in the rules: no other name has two underscores in a row."""
    return f"{db}__{name}"


def columns_of(table: TableInfo) -> dict[str, ColumnType]:
    """In order, sketches among them as bytes."""
    return {column.name: column.definition.column_type for column in table.schema.columns}


def sketches_of(table: TableInfo) -> dict[str, str]:
    """Column -> `hll` or `bitmap`."""
    kinds = {column.name: column.definition.type.strip().lower() for column in table.schema.columns}
    return {name: kind for name, kind in kinds.items() if kind in ("hll", "bitmap")}


def arrow_schema(schema: StoredSchema, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of rows with these columns, as nodes send them."""
    return pa.schema(
        [pa.field(name, arrow_type(schema.named(name).definition.column_type)) for name in columns]
    )
