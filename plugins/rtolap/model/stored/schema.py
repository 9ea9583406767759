"""The columns of a stored table as files know them: by ids, which survive renames and are never used twice.

A file says which ids it holds. Read under a later schema, a column that was added since has its default
there, a column that was dropped is passed over, and a renamed one has its new name.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal, InvalidOperation

import msgspec

from rtolap.base.errors import ColumnNotFound, DefinitionError, NotFound
from rtolap.column_types import ColumnType
from rtolap.model.stored.table import StoredColumn, StoredTable, TableModel

Value = str | bool | int | float | Decimal | date | datetime
_BITS = {"int": 32, "bigint": 64}
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def default_value(text: str, kind: ColumnType) -> Value:
    """Return a default value exactly. A default that the type would have to round raises DefinitionError."""
    try:
        return _read(text, kind)
    except (ValueError, InvalidOperation, KeyError) as error:
        raise DefinitionError(
            "a default that its column cannot hold", expected=f"a value of type {kind}", found=repr(text)
        ) from error


def _read(text: str, kind: ColumnType) -> Value:
    match kind.kind:
        case "string":
            return text
        case "boolean":
            return _BOOLEANS[text.strip().lower()]
        case "int" | "bigint":
            number, limit = int(text), 1 << (_BITS[kind.kind] - 1)
            if not -limit <= number < limit:
                raise ValueError(text)
            return number
        case "double":
            return float(text)
        case "decimal":
            exact = Decimal(text)
            whole = exact.scaleb(kind.scale)
            if (
                not exact.is_finite()
                or whole != whole.to_integral_value()
                or abs(whole) >= 10**kind.precision
            ):
                raise ValueError(text)
            return exact
        case "date":
            return date.fromisoformat(text)
        case "timestamp":
            instant = datetime.fromisoformat(text)
            if instant.tzinfo is not None:
                raise ValueError(text)
            return instant
        case "binary":
            raise ValueError(text)


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
    """The columns of a stored table at one version.

    Attributes:
        version: grows by one with each change.
        keys: ids of the key columns.
        sequence: id of the sequence column.
        pinned: ids of the columns of the partition and the buckets.
    """

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
    """Return version 1 of a valid definition: ids from 1, in the order of the columns."""
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
