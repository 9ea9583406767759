"""Large segments in pieces: what the tasks write equals a recount, however the rows were cut."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rtolap.aggregates.count_distinct import ValueSet
from rtolap.base.errors import Refused
from rtolap.columnar.schema import physical_schema
from rtolap.cubes.format import blocks, build_pieces
from rtolap.cubes.format.aggregate import aggregate_events, to_plain
from rtolap.cubes.format.build_batch import adopt, check_counted, finish
from rtolap.cubes.format.build_inputs import verify_inputs
from rtolap.cubes.format.build_pieces import (
    BuildTasks,
    PiecePlan,
    Spooled,
    WrittenFile,
    pieces_of,
    plan_combined,
    plan_pieces,
)
from rtolap.cubes.format.tries import new_try, scratch_of
from rtolap.model.build_spec import BuildSpec
from rtolap.model.cube import AggregationGroup, Cube, Schema, cuboids
from rtolap.model.offsets import PartRange
from rtolap.object_store.store import ObjectStore, open_store

from tests.cubes.format.conftest import CUBE as TYPES_CUBE
from tests.cubes.format.conftest import TABLE, events
from tests.support.aggregates.sets import united_bytes
from tests.support.cubes.built import assert_nothing_else, assert_recount
from tests.support.cubes.staging import CUBE, SCHEMA, Staging, raw_events, roll_up

SEED = 20130106
ALL = cuboids(CUBE)
DAYS = [f"201301{day:02d}000000_201301{day + 1:02d}000000" for day in range(1, 5)]


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    uri = (tmp_path / "store").as_uri()
    return Staging(open_store(uri), uri, tmp_path / "store")


def run(tasks: BuildTasks, plan: PiecePlan) -> tuple[list[WrittenFile], list[Spooled]]:
    """The tasks one after another, each reading task before those that merge, as a shuffle has it."""
    sent: dict[int, list[bytes]] = {}
    for read in plan.reads:
        for place, data in tasks.read(read):
            sent.setdefault(place, []).append(data)
    results = [
        result
        for place, piece in enumerate(plan.pieces)
        for result in tasks.merge(piece, sent.get(place, ()))
    ]
    spooled = [result for result in results if isinstance(result, Spooled)]
    written = [result for result in results if isinstance(result, WrittenFile)]
    return [*written, *(tasks.combine(task) for task in plan_combined(spooled))], spooled


def built(staging: Staging, specs: list[BuildSpec], expected_events: list[int]) -> list[list[int]]:
    """Steps 2 to 6 of a batch without Spark. Returns how many files each cuboid of each segment has."""
    inputs = [verify_inputs(staging.store, spec) for spec in specs]
    tried = new_try()
    tasks = BuildTasks(staging.uri, SCHEMA, ALL, scratch_of(tried, specs[0].location))
    plan = plan_pieces(staging.store, [each.files for each in inputs], 2)
    run(tasks, plan)
    folders = [tasks.folder_of(number) for number in range(len(ALL))]
    entries, counted = adopt(staging.store, tried, specs, ALL, folders)
    check_counted(specs, expected_events, entries, counted)
    for spec, of_spec in zip(specs, entries, strict=True):
        finish(staging.store, spec, sum(part.events for part in spec.parts), of_spec)
    return [[len(entry.files) for entry in of_spec] for of_spec in entries]


@pytest.mark.parametrize("rows_max", [10, 60, 1_000_000])
def test_segments_of_any_number_of_pieces_equal_a_recount(
    staging: Staging, monkeypatch: pytest.MonkeyPatch, rows_max: int
) -> None:
    monkeypatch.setattr(build_pieces, "PIECE_ROWS_MAX", rows_max)
    monkeypatch.setattr(build_pieces, "_SPOOL_BYTES", 20_000)
    counts = (120, 0, 1, 40)
    stagings = [staging.of(name) for name in DAYS]
    raws = [raw_events(SEED, number, 0, count, DAYS[number]) for number, count in enumerate(counts)]
    specs = []
    for number, (of, raw, count) in enumerate(zip(stagings, raws, counts, strict=True)):
        half = count // 2  # equal keys in files of two replica sets
        parts = (
            of.part(1, "rs1", raw.slice(0, half), PartRange(number, 0, half)),
            of.part(1, "rs2", raw.slice(half), PartRange(number, half, max(count, 1))),
        )
        specs.append(of.spec(f"b{number}", *parts, covered={number: max(count, 1)}))
    files = built(staging, specs, list(counts))
    manifests = {
        spec.location: assert_recount(of, spec, raw)
        for of, spec, raw in zip(stagings, specs, raws, strict=True)
    }
    assert_nothing_else(staging, manifests)
    assert files[1] == [0] * len(ALL)
    if rows_max == 10:
        assert files[0][0] > 5
        assert files[0][ALL.index(next(c for c in ALL if not c.dimensions))] == 1
    if rows_max == 1_000_000:
        assert files[0] == [1] * len(ALL)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("rows_max", [40, 1_000_000])
def test_every_type_and_measure_survives_being_cut_and_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, rows_max: int
) -> None:
    monkeypatch.setattr(build_pieces, "PIECE_ROWS_MAX", rows_max)
    group = AggregationGroup(("day_start", "city", "code", "ok"), mandatory=("code",))
    cube = replaced(TYPES_CUBE, aggregation_groups=(group,))
    schema = Schema(TABLE, cube)
    store = open_store((tmp_path / "store").as_uri())
    monkeypatch.setattr(blocks, "_READ_BYTES_MAX", 500)  # so that row groups are read in batches
    raw = events(seed, 200)
    paths = []
    for number, start in enumerate(range(0, 200, 40)):
        tables = aggregate_events(schema, raw.slice(start, 40)).values()
        table = pa.concat_tables([to_plain(schema, each) for each in tables])
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, row_group_size=25)
        paths.append(f"staged/{number}.parquet")
        store.write(paths[-1], sink.getvalue().to_pybytes())
    staged = rows_of(store, paths)
    of_cube = cuboids(cube)
    tasks = BuildTasks(store.uri(""), schema, of_cube, "history/scratch")
    written, spooled = run(tasks, plan_pieces(store, [paths], 2))
    assert bool(spooled) == (rows_max == 40)
    assert {each.cuboid for each in written} == set(range(len(of_cube)))
    for number, cuboid in enumerate(of_cube):
        found = stored(store, schema, cuboid.dimensions, tasks.folder_of(number))
        expected = recounted(schema, cuboid.dimensions, staged)
        assert sorted(found, key=repr) == sorted(expected, key=repr), cuboid.name


def replaced(cube: Cube, **changes: Any) -> Cube:
    return Cube(**{name: changes.get(name, getattr(cube, name)) for name in cube.__struct_fields__})


def stored(store: ObjectStore, schema: Schema, dimensions: tuple[str, ...], folder: str) -> list[Any]:
    """Rows of a cuboid but for sketches, whose columns and types are those of history."""
    expected = physical_schema(schema, dimensions, plain=True)
    tables = []
    for file in store.list(folder):
        with store.open(file.path) as source:
            tables.append(pq.read_table(source))
        assert tables[-1].schema.equals(expected)
    return [
        tuple(row.values()) for row in pa.concat_tables(tables).drop_columns(sketches_of(schema)).to_pylist()
    ]


def sketches_of(schema: Schema) -> list[str]:
    return [partial.name for partial in schema.partials if partial.accumulator.relative_error]


def rows_of(store: ObjectStore, paths: list[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in paths:
        with store.open(path) as source:
            rows += pq.read_table(source).to_pylist()
    return rows


def recounted(schema: Schema, dimensions: tuple[str, ...], rows: list[dict[str, Any]]) -> list[Any]:
    """Partials merged by Python, row by row."""
    add = operator.add
    merge: dict[str, Callable[[Any, Any], Any]] = {
        **dict.fromkeys(("rows", "count", "sum"), add),
        "min": min,
        "max": max,
    }
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    with localcontext(prec=60):
        for row in rows:
            group = groups.setdefault(tuple(row[name] for name in dimensions), {})
            for partial in schema.partials:
                name = partial.accumulator.name
                old, new = group.get(partial.name), row[partial.name]
                if isinstance(partial.accumulator, ValueSet) and old is not None and new is not None:
                    group[partial.name] = united_bytes((old, new), partial.accumulator.form)
                elif name != "hll":
                    group[partial.name] = (
                        new if old is None else old if new is None else merge[name](old, new)
                    )
    return [(*key, *values.values()) for key, values in groups.items()]


def test_a_sum_beyond_38_digits_is_refused(staging: Staging) -> None:
    row = roll_up(raw_events(SEED, 9, 0, 1), CUBE.all_dimensions)
    place = row.schema.get_field_index("big__sum")
    kind = row.schema.field(place)
    huge = row.set_column(place, kind, pa.array([Decimal(9 * 10**37)], kind.type))
    part = staging.part_of(1, "rs", pa.concat_tables([huge, huge]), 2, PartRange(0, 0, 2))
    with pytest.raises(Refused, match="38 digits"):
        built(staging, [staging.spec("b", part, covered={0: 2})], [2])


def test_a_large_cuboid_is_combined_by_several_tasks_and_its_files_are_in_order(
    staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_pieces, "PIECE_ROWS_MAX", 20)
    raw = raw_events(SEED, 0, 0, 240)
    spec = staging.spec("b", staging.part(1, "rs", raw, PartRange(0, 0, 240)), covered={0: 240})
    files = dict(zip((c.name for c in ALL), built(staging, [spec], [240])[0], strict=True))
    assert files["hour_start+day"] > 1
    for entry in assert_recount(staging, spec, raw).cuboids:
        for file in entry.files:
            with staging.store.open(f"{spec.location}/{file.name}") as source:
                keys = pq.read_table(source).select(entry.dimensions)
            order = [(name, "ascending") for name in entry.dimensions]
            assert not order or keys.equals(keys.sort_by(order)), file.name


def test_pieces_keep_all_tasks_busy_and_rows_within_bounds() -> None:
    assert pieces_of(0, 0, 1, 2) == 1
    assert pieces_of(100_000, 0, 1, 2) == 1
    assert pieces_of(1_000_000, 0, 1, 2) == 2
    assert pieces_of(1_000_000, 0, 8, 2) == 1
    assert pieces_of(10_000_000, 0, 1, 2) == 8
    assert pieces_of(100_000, 3 * build_pieces.PIECE_BYTES_MAX, 8, 2) == 3
    rng = random.Random(SEED)
    for _ in range(200):
        rows, segments, tasks = rng.randrange(10**8), rng.randrange(1, 5), rng.randrange(1, 9)
        pieces = pieces_of(rows, 0, segments, tasks)
        assert -(-rows // pieces) <= build_pieces.PIECE_ROWS_MAX


def test_a_repeated_task_replaces_what_it_wrote(staging: Staging) -> None:
    raw = raw_events(SEED, 0, 0, 100)
    spec = staging.spec("b", staging.part(1, "rs", raw, PartRange(0, 0, 100)), covered={0: 100})
    tasks = BuildTasks(staging.uri, SCHEMA, ALL, scratch_of(new_try(), spec.location))
    plan = plan_pieces(staging.store, [verify_inputs(staging.store, spec).files], 2)
    first, _ = run(tasks, plan)
    listed = staging.store.list(spec.location)
    assert run(tasks, plan)[0] == first
    assert staging.store.list(spec.location) == listed
    with staging.store.open(f"{tasks.folder_of(0)}/__segment=0/part-00000.parquet") as source:
        assert pc.sum(pq.read_table(source)["__rows"]).as_py() == 100
