"""Promises of every aggregate function over every type of column that it takes: merging, nulls, limits.

The functions come out of the registry: one that is added there is held to the same.
"""

from __future__ import annotations

import random
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rtolap.aggregates.accumulator import Partial
from rtolap.aggregates.registry import AGGREGATES
from rtolap.base.errors import DefinitionError, Refused
from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.grouped import GroupedArray
from rtolap.columnar.schema import arrow_type
from rtolap.cubes.format import blocks
from rtolap.cubes.format.aggregate import aggregate_events, merge_tables, to_plain
from rtolap.model.validation.definition import validate_schema
from rtolap.object_store.store import open_store
from rtolap.query.cubes.merge import group_partials
from rtolap.query.plan import CubeRead, TimeRange
from rtolap.scan.columns import NotCoded, measure_column
from rtolap.scan.folds import CodedGroups
from rtolap.scan.groups import group
from rtolap.scan.keys import code

from tests.support.aggregates.measured import (
    DIMENSIONS,
    GIVEN,
    MEASURED,
    SCHEMA,
    TABLE,
    Measured,
    comparable,
    measured_events,
)
from tests.support.query.oracles.sql_oracle import oracle_cursor
from tests.support.seeds import so_many

pytestmark = pytest.mark.seeded

SEED = 4700
KEYS = ("shop",)
every_measure = pytest.mark.parametrize("measured", [*MEASURED, *GIVEN], ids=lambda each: each.id)


def pieces_of(rng: random.Random, events: pa.Table) -> list[pa.Table]:
    """Local tables of partials of the events, cut anywhere and in any order."""
    cuts = sorted(rng.randrange(events.num_rows) for _ in range(6))
    bounds = [0, *cuts, events.num_rows]
    parts = [events.slice(a, b - a) for a, b in pairwise(bounds)]
    rng.shuffle(parts)
    return [table for part in parts for table in aggregate_events(SCHEMA, part).values()]


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in comparable(table).to_pylist()), key=repr)


def names_of(measured: Measured) -> tuple[str, ...]:
    return tuple(partial.name for partial in measured.partials)


def read_of(measured: Measured, dimensions: tuple[str, ...]) -> CubeRead:
    return CubeRead(SCHEMA, "relation", dimensions, names_of(measured), None, TimeRange())


class Drawn(NamedTuple):
    """Events, and what is made of them once for the tests of all measures.

    Attributes:
        events: of all columns, drawn.
        whole: local tables of partials of all events.
        pieces: local tables of partials of pieces of the events.
        plain: rows of all pieces, as staged files have them.
    """

    rng: random.Random
    events: pa.Table
    whole: list[pa.Table]
    pieces: list[pa.Table]
    plain: pa.Table


@pytest.fixture(scope="module", params=range(so_many(1, 2)))
def drawn(request: pytest.FixtureRequest) -> Drawn:
    rng = random.Random(SEED + request.param)
    events = measured_events(rng, 400, limits=True)
    pieces = pieces_of(rng, events)
    plain = pa.concat_tables([to_plain(SCHEMA, piece) for piece in pieces])
    return Drawn(rng, events, list(aggregate_events(SCHEMA, events).values()), pieces, plain)


@pytest.fixture(scope="module")
def few() -> tuple[pa.Table, list[pa.Table]]:
    """A few events, and local tables of their partials."""
    events = measured_events(random.Random(SEED), 30, limits=True)
    return events, list(aggregate_events(SCHEMA, events).values())


@every_measure
def test_merging_does_not_depend_on_order_or_grouping(measured: Measured, drawn: Drawn) -> None:
    rng, pieces = drawn.rng, drawn.pieces
    names = names_of(measured)
    whole = merge_tables(SCHEMA, drawn.whole, KEYS, names)
    expected = rows_of(to_plain(SCHEMA, whole))
    left = [merge_tables(SCHEMA, [piece], DIMENSIONS, names) for piece in pieces]
    while len(left) > 1:  # any two at a time
        rng.shuffle(left)
        left.append(merge_tables(SCHEMA, [left.pop(), left.pop()], DIMENSIONS, names))
    assert rows_of(to_plain(SCHEMA, merge_tables(SCHEMA, left, KEYS, names))) == expected
    assert rows_of(to_plain(SCHEMA, merge_tables(SCHEMA, pieces, KEYS, names))) == expected


@every_measure
def test_plain_partials_merge_as_those_of_receivers_do(measured: Measured, drawn: Drawn) -> None:
    read = read_of(measured, KEYS)
    expected = rows_of(to_plain(SCHEMA, merge_tables(SCHEMA, drawn.pieces, KEYS, read.partials)))
    plain = drawn.plain.select(read.columns.names)
    merged = group_partials(read, plain)
    if merged.num_rows == plain.num_rows:  # left apart, because sums might overflow in Arrow's kernels
        assert any(partial.accumulator.adds for partial in measured.partials)
        groups = group([code(single_chunk(plain.column(name))) for name in KEYS], plain.num_rows)
        columns = [plain.column(name).take(pa.array(groups.first)) for name in KEYS]
        columns += [_merged(plain, partial, groups.ids, groups.size) for partial in measured.partials]
        merged = pa.table(columns, read.columns.names)
    assert rows_of(merged) == expected


def _merged(plain: pa.Table, partial: Partial, ids: Any, groups: int) -> pa.Array:
    return partial.accumulator.merge(GroupedArray(plain.column(partial.name), ids, groups), partial.type)


def test_builds_in_pieces_merge_as_receivers_do(drawn: Drawn, tmp_path: Path) -> None:
    store = open_store((tmp_path / "store").as_uri())
    (tmp_path / "store").mkdir(exist_ok=True)
    pq.write_table(drawn.plain, store.absolute("staged.parquet"), coerce_timestamps="us")
    block = blocks.in_one(SCHEMA, list(blocks.read_blocks(store, SCHEMA, "staged.parquet", [0])))
    place = SCHEMA.cube.all_dimensions.index(KEYS[0])
    blocks.write_block(store, "built.parquet", SCHEMA, KEYS, blocks.merged(SCHEMA, block, [place]))
    built = pq.read_table(store.absolute("built.parquet"))
    expected = to_plain(SCHEMA, merge_tables(SCHEMA, drawn.pieces, KEYS))
    assert rows_of(built) == rows_of(expected.select(built.column_names))


@every_measure
def test_history_by_codes_merges_as_receivers_do(measured: Measured, drawn: Drawn) -> None:
    plain = drawn.plain
    partials = [p for p in measured.partials if p.type.kind in p.accumulator.folded_kinds]
    for partial in partials:
        column = measure_column(plain.column(partial.name))
        groups = group([code(single_chunk(plain.column(name))) for name in KEYS], plain.num_rows)
        folded = CodedGroups([partial], groups.size)
        try:
            assert column is not None
            folded.add_rows(groups.ids, [column])
        except (AssertionError, NotCoded):
            # Numbers or sums beyond 64 bits: grouped in another way.
            assert partial.type.kind == "decimal" or partial.accumulator.adds
            continue
        numbers, columns = folded.result()
        expected = _merged(plain, partial, groups.ids, groups.size)
        assert columns[partial.name].to_pylist() == expected.take(pa.array(numbers)).to_pylist()


@every_measure
def test_partials_equal_the_engines_function_over_raw_events(measured: Measured, drawn: Drawn) -> None:
    """Of one exact accumulator the partial is the result."""
    partials = measured.partials
    accumulator = partials[0].accumulator
    is_picked = measured.function.reads_source  # the partial has a key before the value
    if len(partials) > 1 or accumulator.sketch_bytes or is_picked:
        return  # what is read back is held against the engine in `test_sql`
    merged = to_plain(SCHEMA, merge_tables(SCHEMA, drawn.pieces, KEYS, names_of(measured)))
    with oracle_cursor() as engine:
        engine.register("events", drawn.events)
        # As wide as the partial: a sum of 128-bit decimals would leave the engine's own type.
        call = measured.function.call(measured.column)
        raw = f"SELECT shop, {call} FROM events GROUP BY shop"
        expected = engine.execute(raw).fetchall()
    assert rows_of(merged) == sorted(map(tuple, expected), key=repr)


@every_measure
def test_nothing_and_nulls_alone(measured: Measured, few: tuple[pa.Table, list[pa.Table]]) -> None:
    events, with_values = few
    assert aggregate_events(SCHEMA, events.slice(0, 0)) == {}
    place = events.column_names.index(measured.column)
    field = events.schema.field(place)
    nulls = events.set_column(place, field, pa.nulls(30, field.type))
    local = list(aggregate_events(SCHEMA, nulls).values())
    merged = to_plain(SCHEMA, merge_tables(SCHEMA, local, (), names_of(measured))).to_pylist()[0]
    for partial in measured.partials:
        value = merged[partial.name]
        if partial.accumulator.algebra == "count":
            assert value == 0
        elif partial.accumulator.relative_error == 0:
            assert value is None
    both = merge_tables(SCHEMA, [*local, *with_values], (), names_of(measured))
    alone = merge_tables(SCHEMA, with_values, (), names_of(measured))
    assert rows_of(to_plain(SCHEMA, both)) == rows_of(to_plain(SCHEMA, alone))
    for partial in measured.partials:
        empty = pa.array([], arrow_type(partial.type))
        none = partial.accumulator.merge(GroupedArray(empty, np.zeros(0, np.int64), 0), partial.type)
        assert len(none) == 0
        absent = pa.nulls(2, arrow_type(partial.type))
        null = partial.accumulator.merge(GroupedArray(absent, np.zeros(2, np.int64), 1), partial.type)
        assert null.to_pylist() == [None]


def _largest(partial: Partial) -> Any:
    """The largest value of the partial's type, if it is a whole number or a decimal of all digits."""
    match partial.type.kind:
        case "bigint":
            return (1 << 63) - 1
        case "int":
            return (1 << 31) - 1
        case "decimal" if partial.type.precision == 38:
            return Decimal((0, (9,) * 38, -partial.type.scale))
    return None


@every_measure
def test_what_leaves_its_type_is_refused_and_never_wraps(measured: Measured) -> None:
    for partial in measured.partials:
        value = _largest(partial)
        if value is None:
            continue
        column = pa.array([value, value], arrow_type(partial.type))
        grouped = GroupedArray(column, np.zeros(2, np.int64), 1)
        if not partial.accumulator.adds:
            assert len(partial.accumulator.merge(grouped, partial.type)) == 1
            assert len(partial.accumulator.merge_local(grouped, partial.type)) == 1
            continue
        with pytest.raises(Refused):
            partial.accumulator.merge(grouped, partial.type)
        with pytest.raises(Refused):
            partial.accumulator.merge_local(grouped, partial.type)
        read = CubeRead(SCHEMA, "relation", (), (partial.name,), None, TimeRange())
        apart = group_partials(read, pa.table([column], read.columns.names))
        assert apart.num_rows == 2  # the engine sums them, in a wider type
        coded = measure_column(pa.chunked_array([column]))
        if coded is not None:
            with pytest.raises(NotCoded):
                CodedGroups([partial], 1).add_rows(np.zeros(2, np.int64), [coded])


def test_a_column_that_a_function_does_not_take_is_refused_by_its_own_words() -> None:
    refused = 0
    for function in AGGREGATES.values():
        for column in TABLE.columns:
            expected = function.mismatch(column.column_type)
            if expected:
                refused += 1
                with pytest.raises(DefinitionError, match=f"{function.name} does not fit .*{expected}"):
                    validate_schema(Measured(function, column.name).schema)
    assert refused
    validate_schema(SCHEMA)


def test_names_that_others_ask_by_are_each_functions_own() -> None:
    functions = tuple(AGGREGATES.values())
    for names in ("name", "title", "sql_key", "shown"):
        assert len({getattr(function, names) for function in functions}) == len(functions), names
    by_name: dict[str, object] = {}
    for function in functions:
        for accumulator in function.accumulators():
            assert by_name.setdefault(accumulator.name, accumulator) == accumulator
            assert accumulator.fold is not None or not accumulator.folded_kinds
