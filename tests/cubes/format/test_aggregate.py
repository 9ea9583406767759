"""Aggregation and merging against an obvious slow implementation."""

import random
from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Context, Decimal
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa
import pytest
from rtolap.columnar.hll import coupons
from rtolap.columnar.hll_image import estimate, image_of_coupons, merge_sketches
from rtolap.columnar.schema import EVENT_MS, physical_schema
from rtolap.cubes.format import aggregate
from rtolap.cubes.format.aggregate import aggregate_events, merge_tables, to_plain
from rtolap.model.cube import Cube, Schema, SegmentPolicy
from rtolap.scan.groups import group
from rtolap.scan.keys import code

from tests.cubes.format.conftest import events
from tests.support.aggregates.sets import set_bytes

Row = dict[str, Any]
_EXACT = Context(prec=100)


def slow_rollup(
    schema: Schema, rows: Iterable[Row], dimensions: tuple[str, ...]
) -> dict[tuple[Any, ...], Row]:
    """Group by plain Python; sketches as their bytes."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        values = row | _times(schema, row[EVENT_MS])
        groups.setdefault(tuple(values[name] for name in dimensions), []).append(row)
    return {
        key: {p.name: _partial(schema, p, members) for p in schema.partials}
        for key, members in groups.items()
    }


def _times(schema: Schema, event_ms: int) -> Row:
    local = datetime.fromtimestamp(event_ms // 1000, ZoneInfo(schema.table.time.zone)).replace(tzinfo=None)
    hour = local.replace(minute=0, second=0)
    return {"hour_start": hour, "day_start": hour.replace(hour=0)}


def _partial(schema: Schema, partial: Any, members: list[Row]) -> Any:
    if partial.source is None:
        return len(members)
    values = [row[partial.source] for row in members if row[partial.source] is not None]
    match partial.accumulator.name:
        case "count":
            return len(values)
        case "hll":
            kind = schema.table.column(partial.source).column_type
            assert kind.kind == "string"
            return image_of_coupons(coupons(pa.array(values, pa.string())).drop_null().to_numpy(), 12)
        case "value_set":
            kind = schema.table.column(partial.source).column_type
            return set_bytes(values, partial.accumulator.form, kind.scale)
        case "min":
            return min(values, default=None)
        case "max":
            return max(values, default=None)
        case "sum" if not values:
            return None
        case "sum" if partial.type.kind == "decimal":
            total = Decimal(0)
            for value in values:
                total = _EXACT.add(total, Decimal(value))
            return total
        case _:
            return sum(values)


@cache
def rows_of(seed: int, rows: int) -> list[Row]:
    """The random events as rows of Python, which nobody changes."""
    found: list[Row] = events(seed, rows).to_pylist()
    return found


def by_key(table: pa.Table, dimensions: tuple[str, ...]) -> dict[tuple[Any, ...], Row]:
    rows = table.to_pylist()
    found = {
        tuple(row[name] for name in dimensions): {k: v for k, v in row.items() if k not in dimensions}
        for row in rows
    }
    assert len(found) == len(rows), "a group occurs twice"
    return found


@pytest.mark.parametrize("seed", range(6))
def test_events_roll_up_as_plain_python_rolls_them_up(
    schema: Schema, random_events: Callable[[int, int], pa.Table], seed: int
) -> None:
    table = random_events(seed, 1 + seed * 300)
    dimensions = schema.cube.all_dimensions
    window = schema.cube.segment.window_ms
    found = aggregate_events(schema, table)
    rows = table.to_pylist()
    assert list(found) == sorted({row[EVENT_MS] // window * window for row in rows})
    for segment, local in found.items():
        assert local.schema.equals(physical_schema(schema, plain=False))
        wanted = slow_rollup(
            schema, (row for row in rows if row[EVENT_MS] // window * window == segment), dimensions
        )
        assert by_key(to_plain(schema, local), dimensions) == wanted


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dimensions", [None, ("city", "day_start"), ("ok",), ()])
def test_merging_any_split_equals_one_roll_up(
    schema: Schema,
    random_events: Callable[[int, int], pa.Table],
    seed: int,
    dimensions: tuple[str, ...] | None,
) -> None:
    table = random_events(seed, 420)
    parts = []
    for start in range(0, 420, 80):
        parts += aggregate_events(schema, table.slice(start, 80)).values()
    chosen = schema.cube.all_dimensions if dimensions is None else dimensions
    merged = merge_tables(schema, parts, dimensions)
    assert merged.schema.equals(physical_schema(schema, dimensions, plain=False))
    assert by_key(to_plain(schema, merged), chosen) == slow_rollup(schema, rows_of(seed, 420), chosen)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dimensions", [("city",), ("city", "ok", "hour_start"), ("code", "day"), ()])
def test_merging_slice_by_slice_equals_one_roll_up(
    schema: Schema,
    random_events: Callable[[int, int], pa.Table],
    seed: int,
    dimensions: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aggregate, "_SLICE_ROWS", 100)
    monkeypatch.setattr(aggregate, "_SLICE_ROWS_MIN", 10)
    monkeypatch.setattr(aggregate, "_ROWS_PER_KEY_MIN", random.Random(seed).choice((1, 4)))
    table = random_events(seed, 600)
    parts = []
    for start in range(0, 600, 200):
        parts += aggregate_events(schema, table.slice(start, 200)).values()
    merged = merge_tables(schema, parts, dimensions)
    assert merged.schema.equals(physical_schema(schema, dimensions, plain=False))
    assert by_key(to_plain(schema, merged), dimensions) == slow_rollup(schema, rows_of(seed, 600), dimensions)


def test_merging_chosen_partials_gives_just_those(
    schema: Schema, random_events: Callable[[int, int], pa.Table]
) -> None:
    parts = list(aggregate_events(schema, random_events(1, 50)).values())
    merged = merge_tables(schema, parts, (), ("price__sum", "__rows"))
    assert merged.column_names == ["price__sum", "__rows"]
    assert merged.column("__rows").to_pylist() == [50]


def test_nothing_merges_to_no_rows(schema: Schema, random_events: Callable[[int, int], pa.Table]) -> None:
    assert merge_tables(schema, [], ()).num_rows == 0
    assert aggregate_events(schema, random_events(1, 0)) == {}


def test_sums_of_the_largest_numbers_do_not_wrap(
    schema: Schema, random_events: Callable[[int, int], pa.Table]
) -> None:
    table = random_events(3, 1)
    at = table.column_names.index("big")
    table = table.set_column(at, "big", pa.array([2**63 - 1]))
    (local,) = aggregate_events(schema, pa.concat_tables([table] * 1000)).values()
    merged = merge_tables(schema, [local] * 1000, (), ("big__sum",))
    assert merged.column("big__sum").to_pylist() == [Decimal((2**63 - 1) * 1_000_000)]


def test_estimates_do_not_depend_on_how_events_were_split(
    schema: Schema, random_events: Callable[[int, int], pa.Table]
) -> None:
    table = random_events(5, 2000)
    whole = to_plain(schema, merge_tables(schema, list(aggregate_events(schema, table).values()), ()))
    pieces = []
    for start in range(0, 2000, 70):
        local = merge_tables(schema, list(aggregate_events(schema, table.slice(start, 70)).values()), ())
        pieces.append(to_plain(schema, local).column("user__hll")[0].as_py())
    image = whole.column("user__hll")[0].as_py()
    assert merge_sketches(reversed(pieces)) == image
    assert round(estimate(image)) == 30


def test_a_cube_without_dimensions_has_one_group_a_segment(
    schema: Schema, random_events: Callable[[int, int], pa.Table]
) -> None:
    bare = Schema(schema.table, Cube(name="n", table="t", dimensions=(), time_dimensions=()))
    found = aggregate_events(bare, random_events(2, 500))
    assert [local.num_rows for local in found.values()] == [1] * len(found)
    assert sum(local.column("__rows")[0].as_py() for local in found.values()) == 500


def test_many_wide_dimensions_still_group_exactly(schema: Schema) -> None:
    """The product of the cardinalities is far beyond 64 bits here."""
    columns = [pa.array([(row * step) % 4001 for row in range(4001)] * 2) for step in range(1, 13)]
    groups = group([code(column) for column in columns], 8002)
    assert groups.size == 4001
    assert groups.first.tolist() == list(range(4001))


def test_a_batch_of_many_segments_is_split_as_one_of_few(
    schema: Schema, random_events: Callable[[int, int], pa.Table]
) -> None:
    table = random_events(6, 600)
    policy = SegmentPolicy(window_ms=300_000)
    fine = Schema(schema.table, msgspec.structs.replace(schema.cube, segment=policy))
    found = aggregate_events(fine, table)
    assert len(found) > 8
    for segment, local in found.items():
        rows = [row for row in table.to_pylist() if row[EVENT_MS] // 300_000 * 300_000 == segment]
        wanted = slow_rollup(fine, rows, fine.cube.all_dimensions)
        assert by_key(to_plain(fine, local), fine.cube.all_dimensions) == wanted
    merged = merge_tables(fine, list(found.values()), ())
    assert by_key(to_plain(fine, merged), ()) == slow_rollup(fine, table.to_pylist(), ())
