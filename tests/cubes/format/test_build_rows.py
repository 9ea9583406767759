"""A batch of small segments in memory: read together, and written out as versions that equal a recount."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from rtolap.base.errors import Corrupted
from rtolap.columnar.schema import physical_schema
from rtolap.cubes.format.build_batch import (
    CUBOID_COLUMN,
    SEGMENT_COLUMN,
    VersionWriter,
    check_events,
    finish,
    read_rows,
)
from rtolap.cubes.format.build_inputs import verify_inputs
from rtolap.cubes.format.tries import new_try
from rtolap.model.cube import cuboids
from rtolap.model.offsets import PartRange
from rtolap.object_store.store import open_store

from tests.support.cubes.built import assert_nothing_else, assert_recount
from tests.support.cubes.staging import CUBE, SCHEMA, Staging, raw_events, roll_up

SEED = 20130104
ALL = cuboids(CUBE)
DAYS = [f"201301{day:02d}000000_201301{day + 1:02d}000000" for day in range(1, 5)]
EVENTS = (150, 0, 1, 60)


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    uri = (tmp_path / "store").as_uri()
    return Staging(open_store(uri), uri, tmp_path / "store")


def numbered(table: pa.Table, name: str, number: int) -> pa.Table:
    return table.append_column(pa.field(name, pa.int32()), pa.array(np.full(len(table), number, np.int32)))


def grouped(raws: list[pa.Table]) -> pa.Table:
    """What Spark hands back: rows of all cuboids and segments, in no order."""
    tables = [
        numbered(numbered(roll_up(raw, cuboid.dimensions), SEGMENT_COLUMN, place), CUBOID_COLUMN, number)
        for number, cuboid in enumerate(ALL)
        for place, raw in enumerate(raws)
    ]
    whole = pa.concat_tables(tables, promote_options="default")
    return whole.take(np.random.default_rng(SEED).permutation(len(whole)))


def test_versions_written_out_of_one_table_equal_a_recount(staging: Staging) -> None:
    days = [staging.of(name) for name in DAYS]
    raws = [raw_events(SEED, number, 0, events, DAYS[number]) for number, events in enumerate(EVENTS)]
    parts = [
        of.part(1, "rs", raw, PartRange(number, 0, max(1, raw.num_rows)))
        for number, (of, raw) in enumerate(zip(days, raws, strict=True))
    ]
    specs = [
        of.spec(f"b{number}", part, covered={number: max(1, events)})
        for number, (of, part, events) in enumerate(zip(days, parts, EVENTS, strict=True))
    ]
    writer = VersionWriter(staging.store, new_try(), specs, ALL, grouped(raws))
    entries = [list(of) for of in zip(*(writer.write(number) for number in range(len(ALL))), strict=True)]
    check_events(staging.store, specs, EVENTS, entries)
    manifests = [
        finish(staging.store, spec, events, of)
        for spec, events, of in zip(specs, EVENTS, entries, strict=True)
    ]
    for of, spec, raw, manifest in zip(days, specs, raws, manifests, strict=True):
        assert assert_recount(of, spec, raw) == manifest
        assert all(len(entry.files) == (1 if raw.num_rows else 0) for entry in manifest.cuboids)
    assert_nothing_else(staging, {spec.location: of for spec, of in zip(specs, manifests, strict=True)})


def test_rows_of_several_files_carry_the_place_of_their_segment(staging: Staging) -> None:
    days = [staging.of(name) for name in DAYS[:2]]
    raws = [raw_events(SEED, number, 0, 30, DAYS[number]) for number in range(2)]
    inputs = [
        verify_inputs(
            staging.store,
            of.spec(
                "b",
                of.part(1, "rs1", raw.slice(0, 20), PartRange(0, 0, 20)),
                of.part(1, "rs2", raw.slice(20), PartRange(0, 20, 30)),
                covered={0: 30},
            ),
        )
        for of, raw in zip(days, raws, strict=True)
    ]
    rows = read_rows(staging.store, SCHEMA, [each.files for each in inputs])
    assert rows.num_rows == sum(each.rows for each in inputs)
    for place, raw in enumerate(raws):
        of_place = rows.filter(pa.compute.equal(rows[SEGMENT_COLUMN], place))
        assert pa.compute.sum(of_place["__rows"]).as_py() == raw.num_rows
        assert pa.compute.max(of_place["at__max"]).as_py() == pa.compute.max(raw["at"]).as_py()


def test_no_files_at_all_are_no_rows(staging: Staging) -> None:
    rows = read_rows(staging.store, SCHEMA, [[], []])
    assert rows.num_rows == 0
    assert rows.column_names == [*physical_schema(SCHEMA, plain=True).names, SEGMENT_COLUMN]


def test_rows_of_a_cuboid_that_is_not_there_are_refused(staging: Staging) -> None:
    specs = [staging.spec("b", covered={})]
    rows = grouped([raw_events(SEED, 0, 0, 5)])
    with pytest.raises(Corrupted, match="batch of builds"):
        VersionWriter(staging.store, new_try(), specs, ALL[:-1], rows)
