"""The plan for reading a cube's source columns from JSON: paths, Arrow types, and what to watch.

Dates and timestamps are read as strings and parsed afterwards, because the reader would take bare numbers
for them. Two columns may read one path if they read it as the same type.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rtolap.base.errors import DefinitionError
from rtolap.column_types import BIGINT, INT, STRING, ColumnType, decimal
from rtolap.columnar.schema import arrow_type
from rtolap.events.classify import Leaf
from rtolap.events.event_time import EventTimeParser
from rtolap.events.lossy import ANY_SCALE, Strict
from rtolap.model.cube import Schema
from rtolap.model.table import VALUE
from rtolap.model.value_paths import index_of, path_text

_EPOCH_TYPES = ("int", "bigint", "timestamp", "string")
_WRITTEN_TYPES = ("string", "timestamp", "date")
ITEMS = "[]"
_OUTSIDE = "\0"  # of names of values: none begins like this
NO_VALUE = (" no value",)  # the path of a column that no record has, for readers that need one
_PATTERN_TYPES = ("string", "timestamp")


class JsonPlan:
    """The leaves that are read. `known`: names allowed at the top level, or None when any are.

    Attributes:
        reads_items: whether an item of an array itself is a column.
    """

    def __init__(self, leaves: tuple[Leaf, ...], known: frozenset[str] | None) -> None:
        self.leaves = leaves
        self.known = known
        self.arrow_schema = pa.schema(_fields(_tree(leaves)))
        self.reads_items = any(index_of(leaf.path[-1]) is not None for leaf in leaves)

    def strict(self) -> list[Strict]:
        """Return columns whose digits must not be lost on reading, by the last part of their path."""
        watched = []
        for leaf in self.leaves:
            if index_of(leaf.path[-1]) is not None:
                continue  # an item has no key: see `reads_items`
            if leaf.type.kind in ("int", "bigint"):
                watched.append(Strict(leaf.path[-1], None))
            elif leaf.type.kind == "decimal":
                watched.append(Strict(leaf.path[-1], leaf.type.scale if leaf.rounded is None else ANY_SCALE))
        return watched


def source_path(source: str) -> tuple[str, ...]:
    """Return the path at which a source beside the value stands in the rows: no value can have it."""
    return (_OUTSIDE + source,)


class ReadPlan(JsonPlan):
    """The columns that are read. Raises DefinitionError for a column that cannot be read.

    Attributes:
        columns: in the order of `Schema.read_columns`.
        leaves: the columns, and the field of the producer's watermark where the table has one.
        statement_path: the path of that field.
        sourced: the columns that are not in the value, by their source.
    """

    def __init__(self, schema: Schema, times: EventTimeParser) -> None:
        self.time_column = schema.table.time.column
        table = schema.table
        self.columns = tuple(self._leaf(schema, name, times) for name in schema.read_columns)
        self.statement_path = (table.watermark_field,) if table.watermark_records == "field" else None
        sources = {name: table.column(name).source for name in schema.read_columns}
        self.sourced = {sources[leaf.name]: leaf for leaf in self.columns if sources[leaf.name] != VALUE}
        leaves = tuple(leaf for leaf in self.columns if sources[leaf.name] == VALUE)
        if self.statement_path is not None:
            leaves += (Leaf(table.watermark_field, self.statement_path, STRING, False),)
        if not leaves:  # a reader reads a column
            leaves = (Leaf("", NO_VALUE, STRING, False),)
        in_values = [each for each in table.columns if each.expression is None and each.source == VALUE]
        known = (
            frozenset(column.json_path[0] for column in in_values).union(self.statement_path or ())
            if table.unknown_columns == "reject"
            else None
        )
        super().__init__(leaves, known)

    def _leaf(self, schema: Schema, name: str, times: EventTimeParser) -> Leaf:
        column = schema.table.column(name)
        declared = column.column_type
        is_time = name == self.time_column
        path = column.json_path if column.source == VALUE else source_path(column.source)
        read = STRING if declared.kind in ("date", "timestamp", "binary") else declared
        if is_time:
            allowed: tuple[str, ...] = _EPOCH_TYPES if times.is_epoch else _WRITTEN_TYPES
            if not times.is_epoch and schema.table.time.format != "iso8601":
                allowed = _PATTERN_TYPES
            if declared.kind not in allowed:
                raise DefinitionError(
                    f"table {schema.table.name}: the event time {name} cannot be read",
                    expected=f"type {', '.join(allowed)} for format {schema.table.time.format}",
                    found=str(declared),
                )
            read = STRING
            if times.is_epoch and declared.kind != "string":
                read = INT if declared.kind == "int" else BIGINT
        if column.rounding == "half_up":
            finer = decimal(declared.precision + 1, declared.scale + 1)
            return Leaf(name, path, finer, is_time, rounded=declared)
        parser = times if is_time else None
        if not is_time and declared.kind in ("date", "timestamp"):
            parser = EventTimeParser(column.format, "UTC")
            read = BIGINT if parser.is_epoch else STRING
        moment = declared if read == STRING and declared != STRING else None
        return Leaf(name, path, read, is_time, moment=moment, times=parser)


def _tree(leaves: tuple[Leaf, ...]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for leaf in leaves:
        node, steps = root, tuple(map(_key, leaf.path))
        for part in steps[:-1]:
            node = _added(node, part, {}, leaf)
            if not isinstance(node, dict):
                raise _conflict(leaf)
        present: object = _added(node, steps[-1], leaf.type, leaf)
        if not isinstance(present, ColumnType) or present != leaf.type:
            raise _conflict(leaf)
    return root


def _added(node: dict[str, Any], part: str, default: Any, leaf: Leaf) -> Any:
    """Return what stands at a step, the default if there is nothing yet. A value is no array and object at
    once."""
    if node and part not in node and (part == ITEMS or ITEMS in node):
        raise _conflict(leaf)
    return node.setdefault(part, default)


def _key(step: str) -> str:
    """Return the key of a step: all items of an array are read as one type."""
    return step if index_of(step) is None else ITEMS


def _fields(tree: dict[str, Any]) -> list[pa.Field]:
    return [pa.field(name, _type(node)) for name, node in tree.items()]


def _type(node: dict[str, Any] | ColumnType) -> pa.DataType:
    if not isinstance(node, dict):
        return arrow_type(node)
    items = node.get(ITEMS)
    return pa.struct(_fields(node)) if items is None else pa.list_(_type(items))


def _conflict(leaf: Leaf) -> DefinitionError:
    return DefinitionError(
        f"column {leaf.name} reads the path {path_text(leaf.path)}",
        expected="a path read by one column, or by columns of one type",
        found="another column that reads it, or something around or inside it, as another type",
    )
