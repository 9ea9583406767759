"""A stored table as the CREATE TABLE that makes it, its columns as they are now."""

from __future__ import annotations

from rtolap.model.durations import format_duration
from rtolap.model.stored.schema import StoredSchema, initial_schema
from rtolap.model.stored.table import Buckets, StoredColumn, StoredTable

# As MySQL's clients know them; other types are called alike.
_TYPES = {"string": "varchar(65535)", "timestamp": "datetime(6)"}


def create_table_text(definition: StoredTable, schema: StoredSchema) -> str:
    """Return the CREATE TABLE statement, as the MySQL endpoint reads it."""
    lines = [f"  {_column(column.definition)}" for column in schema.columns]
    text = (
        f"CREATE TABLE `{definition.database}`.`{definition.name}` (\n"
        + ",\n".join(lines)
        + "\n) ENGINE=OLAP"
    )
    if schema.keys:
        text += f"\n{definition.model.upper()} KEY({_names(schema.key_names)})"
    properties = _properties(definition, schema)
    policy = definition.partitions
    if policy is not None:
        column = schema.by_id(schema.pinned[0]).name
        by = f"date_trunc(`{column}`, '{policy.unit}')" if policy.on_demand else f"`{column}`"
        text += f"\n{'AUTO ' if policy.on_demand else ''}PARTITION BY RANGE ({by}) ()"
    hashed = _bucket_columns(definition, schema)
    if hashed:
        text += f"\nDISTRIBUTED BY HASH({_names(hashed)}) BUCKETS {definition.buckets.count}"
    if properties:
        listed = ",\n".join(f"  {_quoted(key)} = {_quoted(value)}" for key, value in properties.items())
        text += f"\nPROPERTIES (\n{listed}\n)"
    return text


def _bucket_columns(definition: StoredTable, schema: StoredSchema) -> tuple[str, ...]:
    """Return their present names; none where there is one bucket by the keys, which need not be said."""
    if definition.buckets == Buckets():
        return ()
    first = initial_schema(definition)
    return tuple(schema.by_id(first.named(name).id).name for name in definition.bucket_columns)


def _properties(definition: StoredTable, schema: StoredSchema) -> dict[str, str]:
    found: dict[str, str] = {}
    if schema.sequence is not None:
        found["function_column.sequence_col"] = schema.by_id(schema.sequence).name
    if definition.delete_sign is not None:
        found["enable_batch_delete_by_default"] = str(definition.delete_sign).lower()
    if definition.partitions is not None:
        found["dynamic_partition.time_unit"] = definition.partitions.unit.upper()
        found["dynamic_partition.end"] = str(definition.partitions.ahead)
        if definition.partitions.retention_ms is not None:
            found["rtolap.retention"] = format_duration(definition.partitions.retention_ms)
    return found


def _column(column: StoredColumn) -> str:
    kind = column.type.strip().lower()
    text = f"`{column.name}` {_TYPES.get(kind, kind)}"
    if column.aggregate is not None:
        text += f" {column.aggregate}"
    text += " NULL" if column.nullable else " NOT NULL"
    return text if column.default is None else f"{text} DEFAULT {_quoted(column.default)}"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
