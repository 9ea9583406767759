"""The columns of a stored table as files know them: by ids, which survive renames and are never used twice.

A file says which ids it holds. Read under a later schema, a column that was added since has its default
there, a column that was dropped is passed over, and a renamed one has its new name.
"""

from __future__ import annotations

import msgspec

from rtolap.base.errors import ColumnNotFound, NotFound
from rtolap.model.stored.column_defaults import Value, default_value
from rtolap.model.stored.table import StoredColumn, StoredTable, TableModel


class SchemaColumn(msgspec.Struct, frozen=True):
    id: int
    definition: StoredColumn

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def default(self) -> Value | None:
        text = self.definition.default
        return None if text is None else default_value(text, self.definition.column_type)


class StoredSchema(msgspec.Struct, frozen=True, kw_only=True):
    """`version` grows by one a change. `keys`, `sequence` and `pinned` (partition and buckets) are ids."""

    version: int
    model: TableModel
    columns: tuple[SchemaColumn, ...]
    keys: tuple[int, ...]
    sequence: int | None
    pinned: tuple[int, ...]
    allows_deletes: bool
    next_id: int

    def named(self, name: str) -> SchemaColumn:
        for column in self.columns:
            if column.name == name:
                return column
        raise ColumnNotFound(f"no column {name}", expected=f"one of {', '.join(self.names)}")

    def by_id(self, column_id: int) -> SchemaColumn:
        for column in self.columns:
            if column.id == column_id:
                return column
        raise NotFound(f"no column with the id {column_id}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def key_columns(self) -> tuple[SchemaColumn, ...]:
        return tuple(self.by_id(column_id) for column_id in self.keys)

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.key_columns)


class DefinedTable(msgspec.Struct, frozen=True):
    """A table as it was defined, and its columns as they are now. `table_id` is never used twice: a table
    that was dropped and recreated has another one."""

    table_id: int
    definition: StoredTable
    schema: StoredSchema
    created_at_ms: int

    @property
    def db(self) -> str:
        return self.definition.database

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def qualified_name(self) -> str:
        return self.definition.qualified_name


def initial_schema(table: StoredTable) -> StoredSchema:
    """Version 1 of a valid definition: ids from 1, in the order of the columns."""
    ids = {column.name: at for at, column in enumerate(table.columns, 1)}
    partition = () if table.partitions is None else (table.partitions.column,)
    return StoredSchema(
        version=1,
        model=table.model,
        columns=tuple(SchemaColumn(ids[column.name], column) for column in table.columns),
        keys=tuple(ids[name] for name in table.keys),
        sequence=None if table.sequence_column is None else ids[table.sequence_column],
        pinned=tuple(ids[name] for name in dict.fromkeys((*partition, *table.bucket_columns))),
        allows_deletes=table.allows_deletes,
        next_id=len(ids) + 1,
    )
