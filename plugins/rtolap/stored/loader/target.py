"""The table that rows go to, as far as a loader must know it."""

from __future__ import annotations

import re
import threading
from typing import NamedTuple

from rtolap.base.errors import DefinitionError, NotFound
from rtolap.column_types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    ColumnType,
    decimal,
    parse_type,
)
from rtolap.model.formats.record_format import OPERATION
from rtolap.model.loader import OPERATION_COLUMN, Loader, LoaderColumn
from rtolap.model.stored.schema import default_value
from rtolap.protocols.stream_load.messages import SchemaColumn, TableSchema
from rtolap.stored.loader.sink import Sink
from rtolap.stored.loader.states import StopCause, Stopped

_TYPES: dict[str, ColumnType] = {
    "BOOLEAN": BOOLEAN,
    "TINYINT": INT,
    "SMALLINT": INT,
    "INT": INT,
    "INTEGER": INT,
    "BIGINT": BIGINT,
    "LARGEINT": decimal(38, 0),
    "FLOAT": DOUBLE,
    "DOUBLE": DOUBLE,
    "DATE": DATE,
    "DATEV1": DATE,
    "DATEV2": DATE,
    "DATETIME": TIMESTAMP,
    "DATETIMEV1": TIMESTAMP,
    "DATETIMEV2": TIMESTAMP,
    "CHAR": STRING,
    "VARCHAR": STRING,
    "STRING": STRING,
    "TEXT": STRING,
    # the server reads these from text
    "JSON": STRING,
    "JSONB": STRING,
    "VARIANT": STRING,
    "IPV4": STRING,
    "IPV6": STRING,
}
_DECIMAL = re.compile(r"DECIMAL(?:V2|V3|32|64|128I?|256)?(?:\(\s*(\d+)\s*,\s*(\d+)\s*\))?")
_LATEST_WINS = ("REPLACE", "REPLACE_IF_NOT_NULL")
# The server makes an empty one where a load has none.
_UNIONS = ("HLL_UNION", "BITMAP_UNION", "QUANTILE_UNION", "PERCENTILE_UNION", "GENERIC", "AGG_STATE_UNION")


class TargetColumn(NamedTuple):
    """A column that the loader writes.

    Attributes:
        default: the value as text that replaces a missing one; None where none does.
    """

    name: str
    type: ColumnType
    nullable: bool
    default: str | None
    source: LoaderColumn


class Target(NamedTuple):
    """The table that a loader fills.

    Attributes:
        ordered: True if batches must be loaded one after the other, because the latest row of a key wins.
        left_out: columns of the table that the loader does not write.
    """

    columns: tuple[TargetColumn, ...]
    ordered: bool
    left_out: tuple[str, ...] = ()


def target_of(loader: Loader, schema: TableSchema) -> Target:
    """Return the columns to write: those of the table, and declared ones that only the server's expressions
    read.

    A column that is not declared is left out where the server can fill it and a loader cannot: its type is
    unknown, or its default is an expression.

    Raises Stopped for columns that no loader can fill, or that the table lacks.
    """
    declared = {column.name: column for column in loader.columns}
    in_table = {column.name for column in schema.properties}
    missing = sorted(
        name for name, column in declared.items() if name not in in_table and column.type is None
    )
    if missing:
        raise _unusable(loader, f"it has no column {', '.join(missing)}")
    columns, left_out = [], []
    for column in schema.properties:
        found = _target_column(loader, column, declared.get(column.name))
        if found is None:
            left_out.append(column.name)
        else:
            columns.append(found)
    if left_out and not columns:
        raise _unusable(loader, f"none of its columns can be written: {', '.join(sorted(in_table))}")
    for name, source in declared.items():
        if name not in in_table:
            kind = _read_as(loader, source)
            columns.append(TargetColumn(name, kind, True, source.default, source))
    if loader.record_format.envelope != "none":
        columns.append(_operation(loader, schema, columns))
    sequence = loader.sink.sequence_column or schema.sequence_column
    _check_sequence(loader, columns)
    return Target(tuple(columns), _ordered(loader, schema, sequence), tuple(left_out))


def _operation(loader: Loader, schema: TableSchema, columns: list[TargetColumn]) -> TargetColumn:
    """Return the column of what happened to a row. The server reads it in a condition only."""
    if schema.keys_type not in ("UNIQUE_KEYS", "PRIMARY_KEYS"):
        raise _unusable(loader, f"its model is {schema.keys_type}: changes of rows need one row of a key")
    names = {column.name for column in columns}
    if absent := [name for name in loader.record_format.keys if name not in names]:
        raise _unusable(loader, f"it has no columns {', '.join(absent)}, which `format.keys` names")
    source = LoaderColumn(OPERATION_COLUMN, type="string", source=OPERATION)
    return TargetColumn(OPERATION_COLUMN, STRING, False, None, source)


def _target_column(loader: Loader, column: SchemaColumn, source: LoaderColumn | None) -> TargetColumn | None:
    """Return how a column of the table is written; None where it is left to the server."""
    nullable = column.is_nullable.lower() in ("yes", "true", "")
    known_nullable = bool(column.is_nullable) and nullable
    kind = _type_of(column) if source is None or source.type is None else _read_as(loader, source)
    if kind is None:
        written = column.type.strip().upper()
        if source is not None:
            raise _unusable(
                loader,
                f"column {column.name} is of type {written}; give it a `type` to send it as",
            )
        if not (nullable or column.default is not None or column.aggregation_type.upper() in _UNIONS):
            raise _unusable(
                loader, f"column {column.name} is of type {written}, and takes no null and has no default"
            )
        return None
    default, is_expression = column.default, False
    if source is not None and source.default is not None:
        default = source.default
    if default is not None:
        try:
            default_value(default, kind)
        except DefinitionError as error:
            if source is not None and source.default is not None:
                raise _unusable(loader, f"the declared default of column {column.name}: {error}") from error
            default, is_expression = None, True
    if is_expression and source is None:
        return None
    source = source or LoaderColumn(column.name)
    takes_default = source.missing == "default" or (source.missing == "auto" and not known_nullable)
    return TargetColumn(column.name, kind, nullable, default if takes_default else None, source)


def _ordered(loader: Loader, schema: TableSchema, sequence: str | None) -> bool:
    if loader.order != "auto":
        return loader.order == "always"
    if schema.keys_type in ("UNIQUE_KEYS", "PRIMARY_KEYS", ""):  # of "" nothing is known
        return sequence is None
    return any(column.aggregation_type.upper() in _LATEST_WINS for column in schema.properties)


def _check_sequence(loader: Loader, columns: list[TargetColumn]) -> None:
    name = loader.sink.sequence_column
    if name is not None and name not in {column.name for column in columns}:
        raise _unusable(
            loader,
            f"the sequence column {name} is not written; declare it in `columns`, with a `type` if the table "
            "has none of that name",
        )


def _read_as(loader: Loader, source: LoaderColumn) -> ColumnType:
    try:
        return parse_type(source.type or "")
    except DefinitionError as error:
        raise _unusable(loader, f"column {source.name}: {error}") from error


def _type_of(column: SchemaColumn) -> ColumnType | None:
    """Return the type as which a value is read; None for a type that no loader knows."""
    written = column.type.strip().upper()
    exact = _DECIMAL.fullmatch(written)
    if exact:
        precision, scale = exact[1] or column.precision or "9", exact[2] or column.scale or "0"
        return decimal(min(int(precision), 38), int(scale))
    return _TYPES.get(written.partition("(")[0])


def _unusable(loader: Loader, reason: str) -> Stopped:
    return Stopped(
        StopCause.TABLE_UNUSABLE, f"table {loader.database}.{loader.table} cannot be loaded", found=reason
    )


class SinkColumns:
    """The table's columns as they are now: looked at again and again, so that changes need no restart.

    Thread-safe. `refresh` raises the sink's errors, and Stopped for a table that cannot be loaded.
    """

    def __init__(self, sink: Sink, loader: Loader) -> None:
        self._sink = sink
        self._loader = loader
        self._lock = threading.Lock()
        self._target: Target | None = None

    @property
    def target(self) -> Target:
        with self._lock:
            assert self._target is not None, "refreshed before anything is loaded"
            return self._target

    def refresh(self) -> bool:
        """Read the columns again; return True if anything has changed."""
        loader = self._loader
        try:
            schema = self._sink.schema(loader.database, loader.table)
        except NotFound as error:
            raise Stopped(StopCause.TABLE_UNUSABLE, str(error)) from error
        target = target_of(loader, schema)
        with self._lock:
            changed, self._target = self._target != target, target
        return changed
