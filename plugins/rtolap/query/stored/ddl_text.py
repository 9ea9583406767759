"""A stored table as the CREATE TABLE that makes it: what `ddl` reads. Its columns as they are now."""

from __future__ import annotations

from rtolap.model.durations import format_duration
from rtolap.model.stored_table import StoredColumn
from rtolap.wire.stored_tables import TableInfo

_TYPES = {
    "string": "STRING",
    "boolean": "BOOLEAN",
    "int": "INT",
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "date": "DATE",
    "timestamp": "DATETIME",
    "hll": "HLL",
    "bitmap": "BITMAP",
}


def create_table_text(table: TableInfo) -> str:
    definition = table.definition
    lines = [f"  {_column(column.definition)}" for column in table.schema.columns]
    text = f"CREATE TABLE `{table.db}`.`{table.name}` (\n" + ",\n".join(lines) + "\n) ENGINE=OLAP"
    if table.schema.keys:
        text += f"\n{definition.model.upper()} KEY({_names(table.schema.key_names)})"
    properties = _properties(table)
    policy = definition.partitions
    if policy is not None:
        column = table.schema.by_id(table.schema.pinned[0]).name
        text += f"\nAUTO PARTITION BY RANGE (date_trunc(`{column}`, '{policy.unit}')) ()"
    buckets = definition.buckets
    if buckets.columns:
        text += f"\nDISTRIBUTED BY HASH({_names(buckets.columns)}) BUCKETS {buckets.count}"
    elif buckets.count > 1:
        text += f"\nDISTRIBUTED BY HASH({_names(table.schema.key_names)}) BUCKETS {buckets.count}"
    if properties:
        listed = ",\n".join(f"  {_quoted(key)} = {_quoted(value)}" for key, value in properties.items())
        text += f"\nPROPERTIES (\n{listed}\n)"
    return text


def _properties(table: TableInfo) -> dict[str, str]:
    definition, found = table.definition, {}
    if table.schema.sequence is not None:
        found["function_column.sequence_col"] = table.schema.by_id(table.schema.sequence).name
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
    text = f"`{column.name}` {_TYPES.get(kind, kind.upper())}"
    if column.aggregate is not None:
        text += f" {column.aggregate}"
    text += " NULL" if column.nullable else " NOT NULL"
    return text if column.default is None else f"{text} DEFAULT {_quoted(column.default)}"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
