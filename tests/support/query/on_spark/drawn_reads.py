"""Drawn reads of a drawn history: filters × groups × partials, with values that engines disagree on.

Nulls, NaN, infinities, -0.0, texts that look like patterns, dates before the Gregorian calendar,
microseconds, sums at the ends of their types, sketches. `difference` holds two answers against each other.
"""

from __future__ import annotations

import functools
import math
import operator
import random
from collections.abc import Collection, Sequence
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import datasketches
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rtolap.aggregates.accumulator import Partial
from rtolap.aggregates.approx_percentile import KLL_K_DEFAULT
from rtolap.aggregates.approx_top_k import TOP_MAX, FrequentValues
from rtolap.aggregates.count_distinct import ValueSet
from rtolap.columnar.kll import read_sketch
from rtolap.columnar.schema import arrow_type, physical_schema, select_partials
from rtolap.columnar.top_k import most_frequent
from rtolap.cubes.format.history import describe_file, write_manifest
from rtolap.cubes.format.manifest import CuboidEntry, HistoryManifest
from rtolap.metadata.records import SegmentRecord
from rtolap.model.cube import Cube, Measure, Schema, SegmentPolicy
from rtolap.model.predicate import And, Compare, CompareOp, In, IsNull, Like, Not, Or, Predicate, Scalar
from rtolap.model.segment import SegmentState, segment_of
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.object_store.store import ObjectStore
from rtolap.query.cubes.merge import group_partials
from rtolap.query.engine_functions.sketches import hll_estimate
from rtolap.query.plan import CubeRead, TimeRange

from tests.support.aggregates.sets import set_bytes, united_bytes

DAY_MS = 86_400_000
LG_K = 8
KLL_K = 20
DOUBLE_BOUND = 1e-12  # of a sum of doubles: times what the absolute values of all of them may be together
ROWS_MAX = 120  # of a segment
_DOUBLES_MAX = 1e6 * 3 * ROWS_MAX
_WIDE = Context(prec=100)
TEXTS = (None, "", "AA", "A%", "a_b", "100%", "é'\"%_", "日本 😀", "back\\slash", "line\nend", "Ünal")
LONGS = (None, -(2**63), -1, 0, 1, 2**31, 2**63 - 1)
INTS = (None, -5, 0, 1, 300, 2**31 - 1, -(2**31))
DOUBLES = (None, -0.0, 0.0, 1.5, -2.25, 1e300, math.nan, math.inf, -math.inf)
MEASURED_DOUBLES = (-0.0, 0.1, 1e6, -1e6, 1.5, math.nan, math.inf)
DATES = (None, date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(2013, 1, 1), date(9999, 12, 31))
MOMENTS = (
    None,
    datetime(1, 1, 1),
    datetime(1900, 1, 1, 0, 0, 0, 1),
    datetime(2013, 3, 31, 2, 30),
    datetime(2013, 10, 27, 2, 30, 0, 999_999),
    datetime(9999, 12, 31, 23, 59, 59, 999_999),
)
FARES = (None, Decimal("-1.25"), Decimal("0.00"), Decimal("17.50"), Decimal("999.99"))
DIMENSIONS: dict[str, tuple[str, Sequence[Any]]] = {
    "name": ("string", TEXTS),
    "gate": ("int", INTS),
    "serial": ("bigint", LONGS),
    "is_late": ("boolean", (None, False, True)),
    "ratio": ("double", DOUBLES),
    "on_day": ("date", DATES),
    "seen_at": ("timestamp", MOMENTS),
    "fare": ("decimal(5,2)", FARES),
}
MEASURED = {
    "delay": "int",
    "distance": "bigint",
    "price": "decimal(10,2)",
    "weight": "double",
    "note": "string",
    "flown": "date",
    "landed": "timestamp",
}
SETS = ("note", "delay", "distance", "price", "landed")  # few values each, so that some are too many
_BITS = {"bit_and": operator.and_, "bit_or": operator.or_, "bit_xor": operator.xor}
PATTERNS = ("%", "A%", "%A", "_", "__", "%\\%", "%\n%", "%_b", "100%", "%😀", "", "%é%", "back\\slash", "a__")


def drawn_schema() -> Schema:
    kinds = {name: kind for name, (kind, _) in DIMENSIONS.items()} | MEASURED
    measures = [Measure("count"), Measure("avg", "weight")]
    measures += [Measure(function, "distance") for function in _BITS]
    measures += [Measure("var_pop", name) for name in ("delay", "distance", "price")]
    measures += [Measure("sum", name) for name in ("delay", "distance", "price", "weight")]
    measures += [Measure(function, name) for function in ("min", "max") for name in MEASURED]
    measures += [Measure("count", "note"), Measure("approx_distinct", "note", LG_K)]
    measures += [Measure("approx_percentile", "price", k=KLL_K)]
    measures += [Measure("approx_top_k", "note")]
    measures += [Measure("first", "note"), Measure("last", "delay")]
    measures += [Measure("count_distinct", name, lg_max=4) for name in SETS]
    return Schema(
        Table(
            name="drawn",
            topic="drawn",
            columns=(Column("ts", "bigint"), *(Column(name, kind) for name, kind in kinds.items())),
            time=TimeColumn("ts", "epoch_ms"),
        ),
        Cube(
            name="drawn",
            table="drawn",
            dimensions=tuple(DIMENSIONS),
            time_dimensions=("day",),
            measures=tuple(measures),
            segment=SegmentPolicy(window_ms=DAY_MS),
        ),
    )


SCHEMA = drawn_schema()
_FORMS = {
    partial.name: partial.accumulator.form
    for partial in SCHEMA.partials
    if isinstance(partial.accumulator, ValueSet)
}


_FREQUENT = ("", "日本", *map(str, range(300)))


def drawn_table(
    rng: random.Random, rows: int, *, full: bool, names: Collection[str] | None = None
) -> pa.Table:
    """Return rows of partials of the base cuboid, not merged.

    Args:
        full: True if sums are near the ends of their types, so that most of them together leave them.
        names: The columns that are drawn. None: all; sketches take most of the time.
    """
    fields = [field for field in physical_schema(SCHEMA, plain=True) if names is None or field.name in names]
    return pa.table(
        [pa.array([_value(rng, field, full) for _ in range(rows)], field.type) for field in fields],
        pa.schema(fields),
    )


def _value(rng: random.Random, field: pa.Field, full: bool) -> Any:
    if field.name in DIMENSIONS:
        return rng.choice(DIMENSIONS[field.name][1])
    if field.name == "day_start":
        return datetime(2013, 1, 1) + timedelta(days=rng.randint(0, 2))
    if field.name == "__rows":
        return rng.randint(1, 9)
    if rng.random() < 0.15:
        return None
    if field.name.endswith("__kll"):
        values = np.array([rng.randrange(1000) / 4 for _ in range(rng.choice((1, 3, 200)))])
        quantiles = datasketches.kll_doubles_sketch(KLL_K)
        quantiles.update(values)
        return quantiles.serialize()
    if field.name.endswith("__top_k"):  # of all rows together no more values than a sketch holds
        frequent = datasketches.frequent_strings_sketch(FrequentValues(KLL_K_DEFAULT).lg_size)
        for _ in range(rng.choice((1, 3, 200))):
            frequent.update(rng.choice(_FREQUENT), rng.randint(1, 9))
        return frequent.serialize()
    if field.name.endswith(("__first", "__last")):  # time, partition and offset, then a text
        return rng.randbytes(20) + rng.choice(("", "ü", "-5")).encode()
    if field.name.endswith("__value_set"):
        return _drawn_set(rng, field.name)
    if pa.types.is_binary(field.type):
        sketch = datasketches.hll_sketch(LG_K, datasketches.tgt_hll_type.HLL_8)
        for _ in range(rng.choice((0, 1, 3, 200))):
            sketch.update(f"p{rng.randrange(2_000)}")
        return sketch.serialize_compact()
    if full and field.name.endswith("__sum") and not pa.types.is_floating(field.type):
        is_decimal = pa.types.is_decimal(field.type)
        whole = rng.choice((-1, 1, 1)) * (rng.choice((10**38 - 1, 6 * 10**37)) if is_decimal else 2**63 - 1)
        return Decimal(whole).scaleb(-field.type.scale, _WIDE) if is_decimal else whole
    if pa.types.is_decimal(field.type):
        return Decimal(rng.randint(-(10**9), 10**9)).scaleb(-field.type.scale)
    if pa.types.is_floating(field.type):
        return rng.choice((*(rng.uniform(-1e3, 1e3) for _ in range(3)), *MEASURED_DOUBLES))
    if pa.types.is_string(field.type):
        return rng.choice(TEXTS[1:])
    if pa.types.is_date(field.type):
        return rng.choice(DATES[1:])
    if pa.types.is_timestamp(field.type):
        return rng.choice(MOMENTS[1:])
    return rng.choice((rng.randint(-1000, 1000), 2**31 - 1, -(2**31)))


def _drawn_set(rng: random.Random, name: str) -> bytes | None:
    """Return a set of a few values, or the mark of too many: 16 is the bound."""
    column = SCHEMA.table.column(name.removesuffix("__value_set"))
    field = pa.field(column.name, arrow_type(column.column_type))
    many = rng.choice((1, 1, 2, 5, 30))
    values = [_value(rng, field, full=False) for _ in range(many)]
    if column.name == "note":
        values += [f"p{rng.randrange(2_000)}" for _ in range(many // 5)]
    return set_bytes(values, _FORMS[name], column.column_type.scale)


def drawn_history(rng: random.Random, store: ObjectStore, build: str, days: int = 3) -> list[SegmentRecord]:
    """Write READY versions of one cuboid, of two files each. `build`: a name of its own."""
    segments, full = [], rng.random() < 0.3
    for number in range(days):
        segment = segment_of(1_356_998_400_000 + number * DAY_MS, DAY_MS)
        location = f"history/drawn/{segment.name}/v1-{build}"
        table = drawn_table(rng, rng.randint(1, ROWS_MAX), full=full)
        cut = rng.randint(0, table.num_rows)
        Path(store.absolute(f"{location}/base")).mkdir(parents=True)
        files = []
        for part, piece in enumerate((table.slice(0, cut), table.slice(cut))):
            name = f"base/part-{part}.parquet"
            pq.write_table(piece, store.absolute(f"{location}/{name}"), row_group_size=32)
            files.append(describe_file(store, location, name))
        cuboid = CuboidEntry("base", SCHEMA.cube.all_dimensions, table.num_rows, tuple(files))
        manifest = HistoryManifest(
            cube="drawn",
            segment=segment.name,
            version=1,
            build_id="drawn",
            covered={0: 1},
            events=1,
            cuboids=(cuboid,),
        )
        write_manifest(store, location, manifest)
        record = SegmentRecord(cube="drawn", start_ms=segment.start_ms, end_ms=segment.end_ms)
        ready = partial(msgspec.structs.replace, state=SegmentState.READY, version=1, location=location)
        segments.append(ready(record))
    return segments


def drawn_read(rng: random.Random) -> CubeRead:
    dimensions = tuple(rng.sample(list(DIMENSIONS), rng.choice((0, 1, 1, 2, 3))))
    names = [each.name for each in SCHEMA.partials]
    partials = tuple(rng.sample(names, rng.randint(1, min(5, len(names)))))
    condition = drawn_predicate(rng) if rng.random() < 0.8 else None
    return CubeRead(SCHEMA, "__relation_drawn", dimensions, partials, condition, TimeRange())


def drawn_predicate(rng: random.Random, depth: int = 0) -> Predicate:
    if depth < 3 and rng.random() < 0.5:
        terms = tuple(drawn_predicate(rng, depth + 1) for _ in range(rng.randint(1, 3)))
        combined: list[Predicate] = [And(terms), Or(terms), Or(terms), Not(terms[0])]
        return rng.choice(combined)
    name = rng.choice(list(DIMENSIONS))
    values = [_written(value) for value in DIMENSIONS[name][1] if _is_comparable(value)]
    match rng.choice(("compare", "compare", "in", "null", "like")):
        case "null":
            return IsNull(name, negated=rng.random() < 0.5)
        case "like" if name == "name":
            return Like(name, rng.choice(PATTERNS), negated=rng.random() < 0.5)
        case "in":
            chosen = tuple(rng.sample(values, rng.randint(1, len(values))))
            return In(name, chosen, negated=rng.random() < 0.3)
    is_flag = name == "is_late"
    operators: tuple[CompareOp, ...] = ("eq", "ne") if is_flag else ("eq", "ne", "lt", "le", "gt", "ge")
    op = rng.choice(operators)
    return Compare(name, op, rng.choice(values))


def _is_comparable(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def _written(value: Any) -> Scalar:
    if isinstance(value, datetime):
        return value.isoformat(" ", "microseconds").rjust(26, "0")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return value  # type: ignore[no-any-return]


def difference(read: CubeRead, left: pa.Table, right: pa.Table) -> str:
    """Return what differs between two answers to a read of a drawn history; empty if nothing does."""
    found, wanted = _groups(read, left), _groups(read, right)
    if found.keys() != wanted.keys():
        return f"groups {sorted(map(repr, found.keys() ^ wanted.keys()))[:5]}"
    for key, values in found.items():
        for name, value, other in zip(read.partials, values, wanted[key], strict=True):
            if not _same(value, other):
                return f"{name} of {key}: {value!r} and {other!r}"
    return ""


def _groups(read: CubeRead, table: pa.Table) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return the partials by group. Sums of rows that stay apart are added by Python, which has no bounds."""
    merged = group_partials(read, _canonical(read, table)).to_pylist()
    partials = select_partials(read.schema, read.partials)
    groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in merged:
        key = tuple("NaN" if _is_nan(row[name]) else row[name] for name in read.dimensions)
        groups.setdefault(key, []).append(tuple(row[each.name] for each in partials))
    return {
        key: tuple(_merged(each, [row[at] for row in rows]) for at, each in enumerate(partials))
        for key, rows in groups.items()
    }


def _merged(partial: Partial, values: Sequence[Any]) -> Any:
    known = [value for value in values if value is not None]
    if not known:
        return None
    if partial.accumulator.count_error:
        return most_frequent(list(known), TOP_MAX)
    if partial.accumulator.rank_error:
        return _values_seen(known)
    if isinstance(partial.accumulator, ValueSet):
        return united_bytes(known, partial.accumulator.form)
    if partial.accumulator.sketch_bytes:
        return _estimate(known)
    if partial.accumulator.adds:
        return sum(map(Fraction, known)) if not isinstance(known[0], float) else sum(known)
    if partial.accumulator.name in _BITS:
        return functools.reduce(_BITS[partial.accumulator.name], known)
    numbers = [value for value in known if not _is_nan(value)] or known
    return max(numbers) if partial.accumulator.name in ("max", "last") else min(numbers)


def _canonical(read: CubeRead, table: pa.Table) -> pa.Table:
    """-0.0 is 0.0 to SQL: one group, whichever it is called by."""
    for name in read.dimensions:
        if pa.types.is_floating(table.schema.field(name).type):
            values = [0.0 if value == 0 else value for value in table.column(name).to_pylist()]
            at = table.column_names.index(name)
            table = table.set_column(at, table.schema.field(name), pa.array(values, pa.float64()))
    return table


def _values_seen(sketches: Sequence[bytes]) -> tuple[int, float, float]:
    """Return how many values the sketches saw, the least and the greatest: what chance does not change."""
    found = [read_sketch(sketch) for sketch in sketches]
    assert {sketch.k for sketch in found} == {KLL_K}
    least, greatest = min(s.get_min_value() for s in found), max(s.get_max_value() for s in found)
    return sum(sketch.n for sketch in found), least, greatest


def _estimate(sketches: Sequence[bytes]) -> float:
    return float(round(hll_estimate(pa.array([list(sketches)], pa.list_(pa.binary())))[0].as_py(), 6))


def _same(value: Any, other: Any) -> bool:
    if _is_nan(value) or _is_nan(other):
        return _is_nan(value) and _is_nan(other)
    if isinstance(value, float) and isinstance(other, float) and math.isfinite(value):
        return abs(value - other) <= DOUBLE_BOUND * _DOUBLES_MAX
    return bool(value == other)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
