"""CREATE TABLE from its columns on: keys, partitions, buckets and properties of a stored table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from rtolap.base.errors import DefinitionError, QueryError, UnsupportedSql
from rtolap.model.durations import parse_duration_ms
from rtolap.model.stored.table import (
    Buckets,
    PartitionUnit,
    RangePartitions,
    StoredColumn,
    StoredTable,
    TableModel,
)
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.query.stored.ddl_columns import column
from rtolap.query.stored.words import Words

_MODELS: tuple[tuple[str, TableModel], ...] = (
    ("UNIQUE", "unique"),
    ("DUPLICATE", "duplicate"),
    ("AGGREGATE", "aggregate"),
)
_HOUR_MS = 3_600_000
# A lower bound: nothing is dropped before its time.
_UNIT_MS: dict[str, int] = {
    "hour": _HOUR_MS,
    "day": 24 * _HOUR_MS,
    "week": 168 * _HOUR_MS,
    "month": 31 * 24 * _HOUR_MS,
    "year": 366 * 24 * _HOUR_MS,
}
_DYNAMIC = "dynamic_partition."
# Written by others' scripts; the frontend decides on replicas, and rows are merged as they are written.
_NOTED = {
    "replication_num": "the endpoint decides how many replicas there are",
    "replication_allocation": "the endpoint decides where replicas are",
    "storage_format": "stored tables have one format",
    "compression": "stored tables have one format",
    "light_schema_change": "columns can always be changed",
    f"{_DYNAMIC}prefix": "partitions are called by their time",
    f"{_DYNAMIC}buckets": "all partitions have the buckets of the table",
    f"{_DYNAMIC}create_history_partition": "loads make the partitions that they need",
    f"{_DYNAMIC}time_zone": "partitions begin in UTC",
}


@dataclass
class _Clauses:
    model: TableModel = "duplicate"
    keys: tuple[str, ...] = ()
    partition_column: str | None = None
    unit: PartitionUnit | None = None
    is_auto: bool = False
    buckets: Buckets = field(default_factory=Buckets)
    properties: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def create_table(words: Words, name: TableName) -> tuple[StoredTable, tuple[str, ...]]:
    """Return the definition, which is not validated yet, and notes."""
    columns, marked = _columns(words)
    clauses = _Clauses(keys=marked)
    while not words.ended():
        _clause(words, clauses)
    words.end()
    sequence = _sequence_column(clauses)
    delete_sign = _taken(clauses, "enable_batch_delete_by_default")
    partitions = _partitions(clauses)
    clauses.notes += notes_on(clauses.properties, f"table {name}")
    table = StoredTable(
        database=name.db,
        name=name.name,
        columns=columns,
        model=clauses.model,
        keys=clauses.keys,
        sequence_column=sequence,
        delete_sign=None if delete_sign is None else _boolean("enable_batch_delete_by_default", delete_sign),
        partitions=partitions,
        buckets=clauses.buckets,
    )
    return table, tuple(clauses.notes)


def notes_on(properties: Mapping[str, str], statement: str) -> list[str]:
    """Return notes on properties that are accepted and have no effect. Raises QueryError for any other."""
    for key, value in properties.items():
        if key not in _NOTED:
            raise UnsupportedSql(f"unsupported property {key!r} of {statement}", found=repr(value))
    return [f"{key} has no effect: {_NOTED[key]}" for key in properties]


def _columns(words: Words) -> tuple[tuple[StoredColumn, ...], tuple[str, ...]]:
    words.expect("(")
    columns = []
    while True:
        if words.at("INDEX") or words.at("PRIMARY") or words.at("CONSTRAINT"):
            raise words.unsupported("columns")
        columns.append(column(words))
        if not words.accept(","):
            break
    words.expect(")")
    marked = tuple(each.column.name for each in columns if each.is_key)
    return tuple(each.column for each in columns), marked


def _clause(words: Words, clauses: _Clauses) -> None:
    if words.accept("ENGINE"):
        words.accept("=")
        if words.word("an engine") != "OLAP":
            raise words.unsupported("ENGINE=OLAP")
        return
    for word, model in _MODELS:
        if words.accept(word, "KEY"):
            clauses.model, clauses.keys = model, words.names("a key column")
            return
    if words.accept("COMMENT"):
        words.text("a comment")
        clauses.notes.append("the comment is not kept")
    elif words.at("AUTO", "PARTITION") or words.at("PARTITION"):
        _partition_by(words, clauses)
    elif words.accept("DISTRIBUTED", "BY"):
        clauses.buckets = _distributed(words, clauses)
    elif words.accept("PROPERTIES"):
        clauses.properties.update(properties(words))
    else:
        raise words.unsupported("a key, PARTITION BY RANGE, DISTRIBUTED BY or PROPERTIES")


def _partition_by(words: Words, clauses: _Clauses) -> None:
    clauses.is_auto = words.accept("AUTO")
    words.expect("PARTITION")
    words.expect("BY")
    if not words.accept("RANGE"):
        raise words.unsupported("PARTITION BY RANGE")
    words.expect("(")
    if words.accept("DATE_TRUNC"):
        words.expect("(")
        clauses.partition_column = words.name("a column")
        words.expect(",")
        clauses.unit = _unit(words.text("a unit of time"))
        words.expect(")")
    else:
        clauses.partition_column = words.name("a column")
    words.expect(")")
    if words.accept("(") and not words.accept(")"):
        raise words.unsupported("no ranges: partitions are made by their unit of time")


def _distributed(words: Words, clauses: _Clauses) -> Buckets:
    columns: tuple[str, ...] = ()
    is_random = words.accept("RANDOM")
    if not is_random:
        words.expect("HASH")
        columns = words.names("a column")
    count = 1
    if words.accept("BUCKETS"):
        if words.accept("AUTO"):
            clauses.notes.append("BUCKETS AUTO is one bucket")
        else:
            count = words.number("a number of buckets")
    if is_random and count > 1:
        raise UnsupportedSql("unsupported SQL: several buckets at RANDOM", expected="DISTRIBUTED BY HASH (…)")
    return Buckets(count, columns)


def properties(words: Words) -> dict[str, str]:
    """Parse `('key' = 'value', …)`, with keys in lower case."""
    words.expect("(")
    properties_by_name: dict[str, str] = {}
    while True:
        key = words.text("the name of a property").strip().lower()
        words.expect("=")
        properties_by_name[key] = words.text(f"the value of {key}").strip()
        if not words.accept(","):
            break
    words.expect(")")
    return properties_by_name


def _partitions(clauses: _Clauses) -> RangePartitions | None:
    dynamic = {
        key: value
        for key in ("enable", "time_unit", "start", "end")
        if (value := _taken(clauses, _DYNAMIC + key)) is not None
    }
    retention = _taken(clauses, "rtolap.retention")
    if clauses.partition_column is None:
        if dynamic or retention:
            raise QueryError("properties about partitions of a table without", expected="PARTITION BY RANGE")
        return None
    enabled = "time_unit" in dynamic and _boolean(_DYNAMIC + "enable", dynamic.get("enable", "true"))
    unit = _unit(dynamic["time_unit"]) if enabled else clauses.unit
    if unit is None:
        raise QueryError(
            f"the partitions by {clauses.partition_column} have no unit of time",
            expected=f"date_trunc({clauses.partition_column}, 'day') or the property {_DYNAMIC}time_unit",
        )
    ahead = _whole(_DYNAMIC + "end", dynamic["end"]) if enabled and "end" in dynamic else None
    retention_ms: int | None = None
    if enabled and "start" in dynamic:
        retention_ms = -_whole(_DYNAMIC + "start", dynamic["start"]) * _UNIT_MS[unit]
    if retention is not None:
        try:
            retention_ms = parse_duration_ms(retention)
        except DefinitionError as error:
            raise QueryError(f"property rtolap.retention: {error}") from error
    default_ahead = 0 if clauses.is_auto else 3
    history = clauses.properties.get(f"{_DYNAMIC}create_history_partition", "false")
    return RangePartitions(
        clauses.partition_column,
        unit,
        default_ahead if ahead is None else ahead,
        retention_ms,
        # loads make those of the past that they need, as they do all others
        on_demand=clauses.is_auto or _boolean(f"{_DYNAMIC}create_history_partition", history),
    )


def _sequence_column(clauses: _Clauses) -> str | None:
    on_write = _taken(clauses, "enable_unique_key_merge_on_write")
    if on_write is not None and not _boolean("enable_unique_key_merge_on_write", on_write):
        raise UnsupportedSql("unsupported SQL: merge on read", expected="rows are merged as they are written")
    if _taken(clauses, "function_column.sequence_type") is not None:
        raise UnsupportedSql(
            "unsupported property 'function_column.sequence_type'",
            expected="function_column.sequence_col, which names a column of the table",
        )
    return _taken(clauses, "function_column.sequence_col")


def _taken(clauses: _Clauses, key: str) -> str | None:
    return clauses.properties.pop(key, None)


def _unit(text: str) -> PartitionUnit:
    unit = text.strip().lower()
    if unit not in _UNIT_MS:
        raise UnsupportedSql(
            f"unsupported unit of partitions {text!r}", expected=f"one of {', '.join(_UNIT_MS)}"
        )
    return cast("PartitionUnit", unit)


def _boolean(key: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise QueryError(f"property {key}", expected="true or false", found=repr(text))
    return text.lower() == "true"


def _whole(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise QueryError(f"property {key}", expected="a whole number", found=repr(text)) from error
