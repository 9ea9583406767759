"""The model's types in Arrow, in the two forms that physical columns take.

local   inside a receiver (memory, fragments): strings as dictionary<int32, string>, sketches as coupons
        (list<uint32>, see `hll`), because both group and merge fast
plain   on the wire, in staged parts and in history: strings as they are, sketches as compact HLL_8 bytes

Sets of distinct values are the same bytes in both, see `aggregates.count_distinct`.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from rtolap.aggregates.accumulator import Partial
from rtolap.column_types import ColumnType
from rtolap.model.cube import Schema

# Columns that travel with decoded events, beside the table's own.
EVENT_MS = "__event_ms"
PARTITION = "__partition"
OFFSET = "__offset"

FIELD_ID = b"PARQUET:field_id"  # pyarrow's name for the id of a column in a Parquet file

LOCAL_STRING = pa.dictionary(pa.int32(), pa.string())
COUPONS = pa.list_(pa.uint32())

_SIMPLE: dict[str, pa.DataType] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "binary": pa.binary(),
}


def arrow_type(column_type: ColumnType) -> pa.DataType:
    """Return the plain Arrow type. Timestamps are instants in UTC, written without a zone."""
    if column_type.kind == "decimal":
        return pa.decimal128(column_type.precision, column_type.scale)
    return _SIMPLE[column_type.kind]


def local_type(column_type: ColumnType) -> pa.DataType:
    """Return the type of a dimension in a receiver."""
    return LOCAL_STRING if column_type.kind == "string" else arrow_type(column_type)


def partial_type(partial: Partial, *, plain: bool) -> pa.DataType:
    if partial.accumulator.local_form is not None and not plain:
        return COUPONS
    return arrow_type(partial.type)


def physical_schema(
    schema: Schema,
    dimensions: Iterable[str] | None = None,
    partials: Iterable[str] | None = None,
    *,
    plain: bool,
) -> pa.Schema:
    """Return columns of a table of partial aggregates: dimensions, then partials; None means all of them."""
    names = schema.cube.all_dimensions if dimensions is None else tuple(dimensions)
    of_dimension = arrow_type if plain else local_type
    fields = [pa.field(name, of_dimension(schema.dimension_type(name))) for name in names]
    fields += [
        pa.field(partial.name, partial_type(partial, plain=plain))
        for partial in select_partials(schema, partials)
    ]
    return pa.schema(fields)


def field_ids(schema: Schema) -> dict[str, int]:
    """Return the ids of the cube's physical columns in Parquet files of history, from 1.

    A definition never changes, so a column has one id in all cuboids, for the life of the cube.
    """
    return {name: number for number, name in enumerate(physical_schema(schema, plain=True).names, start=1)}


def history_schema(schema: Schema, dimensions: Iterable[str]) -> pa.Schema:
    """Return the columns of a cuboid in history, with their ids."""
    ids = field_ids(schema)
    plain = physical_schema(schema, dimensions, plain=True)
    return pa.schema([field.with_metadata({FIELD_ID: str(ids[field.name])}) for field in plain])


def columns_with_statistics(schema: pa.Schema) -> list[str]:
    """Return the columns of which Parquet files have statistics: not of sets and sketches, whose least and
    largest values nobody asks for and would make footers many times as large."""
    return [field.name for field in schema if not pa.types.is_binary(field.type)]


def select_partials(schema: Schema, names: Iterable[str] | None) -> tuple[Partial, ...]:
    """Return the named partials, in the requested order; None means all. Unknown names raise KeyError."""
    if names is None:
        return schema.partials
    known = {partial.name: partial for partial in schema.partials}
    return tuple(known[name] for name in names)
