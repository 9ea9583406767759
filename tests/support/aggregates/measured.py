"""A cube with every aggregate function of the registry over every type of column that it takes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rtolap.aggregates.accumulator import Partial, SketchFamily
from rtolap.aggregates.approx_percentile import KLL_K_DEFAULT
from rtolap.aggregates.approx_top_k import TOP_MAX, FrequentValues
from rtolap.aggregates.function import Aggregate
from rtolap.aggregates.registry import AGGREGATES
from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.hll import coupons
from rtolap.columnar.hll_image import image_of_coupons
from rtolap.columnar.kll import read_sketch, sketch_groups
from rtolap.columnar.schema import EVENT_MS, OFFSET, PARTITION, arrow_type
from rtolap.columnar.top_k import most_frequent, sketch_frequencies
from rtolap.events.computed import ComputedColumn
from rtolap.model.cube import Cube, Measure, Schema, SegmentPolicy
from rtolap.model.table import Column, Table, TimeColumn

LG_K = 9
PARTITIONS = 4
DIMENSIONS = ("shop", "region")
_START = datetime(2013, 1, 1)
_HOUR_MS = 3_600_000
_VALUES = {
    "text": "string",
    "flag": "boolean",
    "whole": "int",
    "big": "bigint",
    "rate": "double",
    "price": "decimal(12,2)",
    "wide": "decimal(38,4)",
    "born": "date",
    "seen": "timestamp",
    "hll_bytes": "binary",
    "kll_bytes": "binary",
    "items_bytes": "binary",
}
TABLE = Table(
    name="measured_events",
    topic="measured",
    time=TimeColumn("at", "iso8601"),
    columns=(
        Column("at", "timestamp"),
        Column("shop", "string"),
        Column("region", "int"),
        *(Column(name, kind) for name, kind in _VALUES.items()),
    ),
)


class Measured(NamedTuple):
    """One function over one column of the table."""

    function: Aggregate
    column: str
    is_given: bool = False  # the column holds sketches

    @property
    def id(self) -> str:
        return f"{self.function.name}-{self.column}"

    @property
    def measure(self) -> Measure:
        return Measure(self.function.name, self.column, LG_K, input="sketch" if self.is_given else "values")

    @property
    def schema(self) -> Schema:
        """A cube with this measure alone."""
        return made_schema((self.measure,))

    @property
    def partials(self) -> tuple[Partial, ...]:
        return self.schema.partials_of(self.measure)


def made_schema(measures: tuple[Measure, ...]) -> Schema:
    cube = Cube(
        name="measured",
        table=TABLE.name,
        dimensions=DIMENSIONS,
        measures=measures,
        segment=SegmentPolicy(window_ms=6 * _HOUR_MS),
    )
    return Schema(TABLE, cube)


MEASURED = tuple(
    Measured(function, column)
    for function in AGGREGATES.values()
    for column in _VALUES
    if not function.mismatch(TABLE.column(column).column_type)
)
GIVEN = tuple(
    Measured(AGGREGATES[function], column, is_given=True)
    for function, column in (
        ("approx_distinct", "hll_bytes"),
        ("approx_percentile", "kll_bytes"),
        ("approx_top_k", "items_bytes"),
    )
)
CONDITION = "region > 0"
FILTERED = (
    Measure("count", where=CONDITION),
    Measure("avg", "price", where=CONDITION),
    Measure("max", "text", where=CONDITION),
    Measure("approx_distinct", "text", LG_K, where=CONDITION),
    Measure("approx_distinct", "hll_bytes", LG_K, where=CONDITION, input="sketch"),
)
SCHEMA = made_schema((Measure("count"), *(each.measure for each in (*MEASURED, *GIVEN)), *FILTERED))


def given_image(family: SketchFamily, values: Sequence[str]) -> bytes | None:
    """Return a sketch of texts, or of the numbers of their characters, as a measure with its defaults keeps
    it; None of no values."""
    column, one = pa.array(values, pa.string()), np.zeros(len(values), np.int64)
    if not values:
        return None
    match family:
        case "hll":
            return image_of_coupons(np.asarray(coupons(column).drop_null(), np.uint32), LG_K)
        case "kll":
            (image,) = sketch_groups(pc.utf8_length(column), one, 1, KLL_K_DEFAULT).to_pylist()
        case "frequent_items":
            size = FrequentValues(KLL_K_DEFAULT).lg_size
            (image,) = sketch_frequencies(column, one, 1, size).to_pylist()
    return bytes(image)


def measured_events(rng: random.Random, rows: int, *, limits: bool) -> pa.Table:
    """Return decoded events with many nulls. With `limits` they have negative numbers, up to the ends of
    their types."""

    def whole(bits: int) -> int:
        if not limits:
            return rng.randrange(1 << 20)
        return rng.choice([-(1 << bits), (1 << bits) - 1, rng.randrange(-50, 50)])

    def digits(count: int) -> int:
        return rng.choice([10**count - 1, 1 - 10**count, 7]) if limits else rng.randrange(10**6)

    apart = random.Random(rows)  # so that the other values do not depend on them

    def some() -> list[str]:
        count = apart.choice([0, 1, 2, 30])
        return [f"{'v' * apart.randrange(1, 9)}{apart.randrange(40)}" for _ in range(count)]

    next_offset = [0] * PARTITIONS

    def one() -> dict[str, Any]:
        partition, seconds = rng.randrange(PARTITIONS), rng.randrange(86_400)
        next_offset[partition] += 1
        values = {
            "text": rng.choice(["", "Æ", "日本", *(f"user-{number}" for number in range(300))]),
            "flag": rng.random() < 0.5,
            "whole": whole(31),
            "big": whole(63),
            "rate": rng.randrange(-1000, 1000) / 8,
            "price": Decimal(digits(12)).scaleb(-2),
            "wide": Decimal(digits(33)).scaleb(-4),
            "born": date(1950, 1, 1) + timedelta(days=rng.randrange(20_000)),
            "seen": _START + timedelta(microseconds=rng.randrange(10**12)),
        }
        values = {name: None if rng.random() < 0.2 else value for name, value in values.items()}
        return values | {
            "hll_bytes": given_image("hll", some()),
            "kll_bytes": given_image("kll", some()),
            "items_bytes": given_image("frequent_items", some()),
            "at": _START + timedelta(seconds=seconds),
            "shop": rng.choice([None, "", "Oslo", "Quito"]),
            "region": rng.choice([None, -1, 0, 1]),
            EVENT_MS: (_START - datetime(1970, 1, 1)) // timedelta(milliseconds=1) + 1000 * seconds,
            PARTITION: partition,
            OFFSET: next_offset[partition] - 1,
        }

    fields = [pa.field(column.name, arrow_type(column.column_type)) for column in TABLE.columns]
    fields += [pa.field(EVENT_MS, pa.int64()), pa.field(PARTITION, pa.int32()), pa.field(OFFSET, pa.int64())]
    return with_computed(pa.Table.from_pylist([one() for _ in range(rows)], pa.schema(fields)), SCHEMA)


def comparable(table: pa.Table) -> pa.Table:
    """Return a table of partials with what is the same in all sketches of the same values, in their place:
    which values a sketch of quantiles drops is chance, and in which places a table has its values."""
    for place, name in enumerate(table.column_names):
        if name.endswith("__kll"):
            sketches = [
                None if each is None else read_sketch(each) for each in table.column(name).to_pylist()
            ]
            shown = [
                None if each is None else f"{each.n} {each.k} {each.get_min_value()} {each.get_max_value()}"
                for each in sketches
            ]
            table = table.set_column(place, name, pa.array(shown, pa.string()))
        elif name.endswith("__top_k"):
            found = [
                None if each is None else repr(most_frequent([each], TOP_MAX))
                for each in table.column(name).to_pylist()
            ]
            table = table.set_column(place, name, pa.array(found, pa.string()))
    return table


def with_computed(events: pa.Table, schema: Schema) -> pa.Table:
    """Return events with the columns that their cube computes of them, as a decoder does."""
    for column in schema.needed_columns:
        if column.expression is not None and column.name not in events.column_names:
            inputs = {name: single_chunk(events.column(name)) for name in events.column_names}
            values, beyond = ComputedColumn(schema.table, column).values(inputs, events.num_rows)
            assert not beyond.any()
            events = events.append_column(column.name, values)
    return events
