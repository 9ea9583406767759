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
)
from rtolap.model.loader import Loader, LoaderColumn
from rtolap.model.stored.schema import default_value
from rtolap.protocols.stream_load.messages import SchemaColumn, TableSchema
from rtolap.stored.loader.sink import Sink
from rtolap.stored.loader.states import StopCause, Stopped

_TYPES: dict[str, ColumnType] = {
    "BOOLEAN": BOOLEAN,
    "TINYINT": INT,
    "SMALLINT": INT,
    "INT": INT,
    "BIGINT": BIGINT,
    "LARGEINT": decimal(38, 0),
    "FLOAT": DOUBLE,
    "DOUBLE": DOUBLE,
    "DATE": DATE,
    "DATEV2": DATE,
    "DATETIME": TIMESTAMP,
    "DATETIMEV2": TIMESTAMP,
    "CHAR": STRING,
    "VARCHAR": STRING,
    "STRING": STRING,
    "TEXT": STRING,
}
_DECIMAL = re.compile(r"DECIMAL(?:V2|V3|32|64|128I?|256)?(?:\(\s*(\d+)\s*,\s*(\d+)\s*\))?")
_LATEST_WINS = ("REPLACE", "REPLACE_IF_NOT_NULL")


class TargetColumn(NamedTuple):
    """A column of the target table.

    Attributes:
        default: the default value as text. It replaces a missing value in a column that takes no null.
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
    """

    columns: tuple[TargetColumn, ...]
    ordered: bool


def target_of(loader: Loader, schema: TableSchema) -> Target:
    """Return the target. Raises Stopped for columns that no loader can fill, or that the table lacks."""
    sources = {column.name: column for column in loader.columns}
    missing = sorted(sources.keys() - {column.name for column in schema.properties})
    if missing:
        raise _unusable(loader, f"it has no column {', '.join(missing)}")
    columns = []
    for column in schema.properties:
        kind = _type_of(loader, column)
        source = sources.get(column.name, LoaderColumn(column.name))
        nullable = column.is_nullable.lower() in ("yes", "true")
        if column.default is not None:
            try:
                default_value(column.default, kind)
            except DefinitionError as error:
                raise _unusable(loader, str(error)) from error
        columns.append(TargetColumn(column.name, kind, nullable, column.default, source))
    return Target(tuple(columns), loader.order == "always" or _latest_wins(schema))


def _latest_wins(schema: TableSchema) -> bool:
    if schema.keys_type == "UNIQUE_KEYS":
        return schema.sequence_column is None
    return any(column.aggregation_type.upper() in _LATEST_WINS for column in schema.properties)


def _type_of(loader: Loader, column: SchemaColumn) -> ColumnType:
    written = column.type.strip().upper()
    exact = _DECIMAL.fullmatch(written)
    if exact:
        precision, scale = exact[1] or column.precision or "9", exact[2] or column.scale or "0"
        return decimal(min(int(precision), 38), int(scale))
    kind = _TYPES.get(written.partition("(")[0])
    if kind is None:
        raise _unusable(loader, f"column {column.name} is of type {written}")
    return kind


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
