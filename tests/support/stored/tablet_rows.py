"""Random stored tables and rows of them, as Python values and as Arrow batches."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64
from rtolap.columnar.hll import coupons
from rtolap.columnar.hll_image import sketches_from_coupons
from rtolap.columnar.schema import arrow_type
from rtolap.columnar.sketches import image_of_bitmap
from rtolap.model.stored.schema import SchemaColumn, StoredSchema
from rtolap.model.stored.table import AggregateFunction, StoredColumn, StoredTable, TableModel
from rtolap.model.validation.stored_table import validate_stored_table
from rtolap.stored.engine.rows.columns import DELETE_SIGN

from tests.support.stored.tablet_oracle import DELETE, PARTIAL, Row

KEY_TYPES = ("bigint", "int", "string", "date", "timestamp", "boolean", "decimal(9,2)", "decimal(30,4)")
VALUE_TYPES = (*KEY_TYPES, "double")
_FUNCTIONS: tuple[AggregateFunction, ...] = ("MIN", "MAX", "REPLACE", "REPLACE_IF_NOT_NULL")
_NUMERIC = ("bigint", "int", "double", "decimal(9,2)", "decimal(30,4)")
_TEXTS = ("", "a", "b", "ab", "ä", "zz", "Z", "日本", "a" * 300)
_LG_K = 6  # small, so that sketches become registers


def random_table(rng: random.Random, model: TableModel) -> StoredTable:
    keys = tuple(
        StoredColumn(f"k{at}", rng.choice(KEY_TYPES), nullable=rng.random() < 0.6)
        for at in range(rng.randint(1, 3))
    )
    values = tuple(random_value_column(rng, model, f"v{at}") for at in range(rng.randint(1, 5)))
    sequence = None
    if model == "unique" and rng.random() < 0.5:
        values = (*values, StoredColumn("seq", rng.choice(("int", "timestamp", "decimal(9,2)"))))
        sequence = "seq"
    key_names = tuple(column.name for column in keys)
    table = StoredTable(
        database="d",
        name="t",
        model=model,
        columns=(*keys, *values),
        keys=() if model == "duplicate" and rng.random() < 0.2 else key_names,
        sequence_column=sequence,
    )
    validate_stored_table(table)
    return table


def random_value_column(rng: random.Random, model: TableModel, name: str) -> StoredColumn:
    if model != "aggregate":
        kind = rng.choice(VALUE_TYPES)
        return StoredColumn(name, kind, default=_default(rng, kind))
    pick = rng.random()
    if pick < 0.15:
        return StoredColumn(name, "hll", aggregate="HLL_UNION")
    if pick < 0.3:
        return StoredColumn(name, "bitmap", aggregate="BITMAP_UNION")
    if pick < 0.55:
        return StoredColumn(name, rng.choice(_NUMERIC), aggregate="SUM", default=rng.choice((None, "0")))
    kind = rng.choice(VALUE_TYPES)
    return StoredColumn(name, kind, aggregate=rng.choice(_FUNCTIONS), default=_default(rng, kind))


def random_row(rng: random.Random, schema: StoredSchema) -> Row:
    """Return a row of few keys, so that they meet often."""
    row: dict[int, Any] = {}
    for column in schema.columns:
        null = column.definition.nullable and rng.random() < 0.15
        row[column.id] = None if null else random_value(rng, column.definition.type)
    if schema.allows_deletes:
        row[DELETE] = rng.random() < 0.15
    return row


def partial_rows(rows: Sequence[Row], schema: StoredSchema, ids: Collection[int]) -> list[Row]:
    """Return the same rows with some columns only: the keys and those with these ids."""
    kept = set(ids) | set(schema.keys) | {DELETE}
    return [{PARTIAL: True} | {place: row[place] for place in row if place in kept} for row in rows]


def random_value(rng: random.Random, kind: str) -> Any:
    match kind:
        case "boolean":
            return rng.random() < 0.5
        case "int":
            return rng.randint(-3, 3)
        case "bigint":
            return rng.choice((-(2**63), -1, 0, 1, 2**40, 2**63 - 1))
        case "double":
            return rng.randint(-40, 40) / 4  # sums of quarters are exact
        case "decimal(9,2)":
            return Decimal(rng.randint(-5, 5)).scaleb(-2)
        case "decimal(30,4)":
            return Decimal(rng.choice((-(10**29), -1, 0, 7, 10**29))).scaleb(-4)
        case "date":
            return date(1969, 12, 30) + timedelta(days=rng.randint(0, 4))
        case "timestamp":
            return datetime(1969, 12, 31, 23, 59, 59) + timedelta(microseconds=rng.randint(0, 3) * 700_000)
        case "string":
            return rng.choice(_TEXTS)
        case "hll":
            return frozenset(rng.sample(range(200), rng.choice((0, 1, 3, 60))))
        case "bitmap":
            return frozenset(rng.sample((0, 1, 65_536, 2**32, 2**64 - 1), rng.randint(0, 3)))
    raise ValueError(kind)


def batch_of(rows: Sequence[Row], schema: StoredSchema) -> pa.RecordBatch:
    """Return a batch as a client would send it, with the columns that the rows have."""
    arrays = {
        column.name: _column(rows, column) for column in schema.columns if not rows or column.id in rows[0]
    }
    if schema.allows_deletes:
        arrays[DELETE_SIGN] = pa.array([row[DELETE] for row in rows], pa.bool_())
    return pa.record_batch(arrays)


def plain(table: pa.Table, schema: StoredSchema) -> Counter[tuple[Any, ...]]:
    """Return rows that were read, comparable with `expected`: in no order, sketches as what they stand
    for."""
    columns = [
        [_bitmap(image) for image in table.column(name).to_pylist()]
        if schema.named(name).definition.type == "bitmap"
        else table.column(name).to_pylist()
        for name in table.column_names
    ]
    return Counter(zip(*columns, strict=True))


def expected(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], schema: StoredSchema
) -> Counter[tuple[Any, ...]]:
    shapes: dict[str, Callable[[Any], Any]] = {"hll": _hll, "bitmap": _members}
    shaped = {name: shapes.get(schema.named(name).definition.type, lambda value: value) for name in names}
    return Counter(tuple(shaped[name](row[name]) for name in names) for row in rows)


def _column(rows: Sequence[Row], column: SchemaColumn) -> pa.Array:
    values = [row[column.id] for row in rows]
    match column.definition.type:
        case "hll":
            return pa.array([_hll(value) for value in values], pa.binary())
        case "bitmap":
            images = [None if value is None else image_of_bitmap(BitMap64(value)) for value in values]
            return pa.array(images, pa.binary())
    array = pa.array(values, arrow_type(column.definition.load_type))
    return array.dictionary_encode() if pa.types.is_string(array.type) and len(rows) % 2 else array


@lru_cache(maxsize=8192)  # the same sketch is compared again and again
def _hll(values: frozenset[int] | None) -> bytes | None:
    if values is None:
        return None
    found = pa.array([coupons(pa.array(sorted(values), pa.int64())).to_pylist()], pa.list_(pa.uint32()))
    image: bytes = sketches_from_coupons(found, _LG_K)[0].as_py()
    return image


def _bitmap(image: bytes | None) -> tuple[int, ...] | None:
    return None if image is None else tuple(BitMap64.deserialize(image))


def _members(values: frozenset[int] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(sorted(values))


def _default(rng: random.Random, kind: str) -> str | None:
    if rng.random() < 0.6:
        return None
    value = random_value(rng, kind)
    return str(value).lower() if kind == "boolean" else str(value)
