"""Many segments in one Spark job: each is what it would be alone."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from rtolap.base.errors import NotFound
from rtolap.cubes.format import history
from rtolap.model.build_spec import BuildSpec
from rtolap.model.offsets import PartRange

from tests.support.cubes.built import assert_nothing_else, assert_recount
from tests.support.cubes.staging import CUBE, Staging, raw_events, roll_up

COUNTED_JOB = Path(__file__).parent / "counted_build.py"
SEED = 20130102
DAYS = [f"201301{day:02d}000000_201301{day + 1:02d}000000" for day in range(1, 7)]


def day(staging: Staging, number: int, events: int) -> tuple[Staging, BuildSpec, pa.Table]:
    of = staging.of(DAYS[number])
    raw = raw_events(SEED, number, 0, events, DAYS[number])
    part = of.part(1, "rs1", raw, PartRange(number, 0, events or 1))
    return of, of.spec(f"b{number}", part, covered={number: events or 1}), raw


@pytest.mark.parametrize(
    ("in_files", "python", "looked_at_here"),
    [(False, True, True), (True, True, False), (True, False, False)],
    ids=["in memory", "in files", "in files, without Python"],
)
def test_each_segment_of_a_batch_equals_its_recount(
    staging: Staging, submit: Callable[..., Any], in_files: bool, python: bool, looked_at_here: bool
) -> None:
    days = [day(staging, number, events) for number, events in enumerate((200, 0, 1, 50, 120))]
    done = submit(
        *(spec for _, spec, _ in days), in_files=in_files, python=python, looked_at_here=looked_at_here
    )
    assert done.exit_code == 0, done.errors
    manifests = {spec.location: assert_recount(of, spec, raw) for of, spec, raw in days}
    assert_nothing_else(staging, manifests)
    written = [line for line in done.progress if line["event"] == "cuboid"]
    assert len(written) == len(next(iter(manifests.values())).cuboids)
    assert any(line["event"] == "moved" for line in done.progress) is in_files
    said = [line for line in done.progress if line["event"] == "spark"][-1]
    assert said["stages_done"] == said["stages"] > 0
    assert said["tasks_done"] == said["tasks"] >= said["stages"]
    assert said["tasks_failed"] == 0


LARGE, SMALL = 120, 24  # copies of some hundred rows; a driver reads some 300 kB whatever their number


def with_shops_of(rows: pa.Table, copy: int) -> pa.Table:
    """Return rows of the base cuboid with shops of their own: none merges with another copy's."""
    place, rng = rows.column_names.index("shop"), random.Random(f"{SEED}/{copy}")
    shops = pa.array([f"{rng.getrandbits(128):x}" for _ in range(rows.num_rows)])
    return rows.set_column(place, rows.field(place), shops)


@pytest.mark.parametrize("python", [True, False], ids=["by Python", "by Spark's operators"])
def test_the_driver_of_a_large_build_reads_none_of_its_rows(
    staging: Staging, submit: Callable[..., Any], tmp_path: Path, python: bool
) -> None:
    """Inputs are verified, and outputs counted, by tasks: beside manifests and footers nothing is read."""
    specs: dict[int, BuildSpec] = {}
    sizes: dict[int, int] = {}
    for number, copies in enumerate((LARGE, SMALL)):  # what a driver reads once is counted as the large one's
        of = staging.of(DAYS[number])
        once = roll_up(raw_events(SEED, number, 0, 400, DAYS[number]), CUBE.all_dimensions)
        rows = pa.concat_tables([with_shops_of(once, copy) for copy in range(copies)])
        part = of.part_of(1, "rs1", rows, 400 * copies, PartRange(number, 0, 400 * copies))
        specs[copies] = of.spec(f"b{number}", part, covered={number: 400 * copies})
        sizes[copies] = sum(file.bytes for file in of.store.list(part.path))
    done = submit(
        *specs.values(), job=COUNTED_JOB, apart=True, in_files=True, looked_at_here=False, python=python
    )
    assert done.exit_code == 0, done.errors
    told = msgspec.json.decode((tmp_path / "driver-read-bytes").read_bytes())
    read = {copies: told[spec.build_id] for copies, spec in specs.items()}
    built: dict[int, int] = {}
    for copies, spec in specs.items():
        assert history.verify(staging.store, spec.location).events == 400 * copies
        built[copies] = sum(file.bytes for file in staging.store.list(spec.location))
    assert sizes[LARGE] > 3 * sizes[SMALL]
    assert built[LARGE] > 3 * built[SMALL]
    assert read[LARGE] < 1.2 * read[SMALL]
    assert read[LARGE] < min(sizes[LARGE], built[LARGE]) / 3


@pytest.mark.parametrize("python", [True, False], ids=["by Python", "by Spark's operators"])
def test_damage_that_tasks_find_is_named_as_the_driver_would_name_it(
    staging: Staging, submit: Callable[..., Any], python: bool
) -> None:
    of, spec, _ = day(staging, 0, 40)
    other, good, raw = day(staging, 2, 40)
    (damaged,) = [file.path for file in of.store.list(spec.parts[0].path) if file.path.endswith(".parquet")]
    path = Path(of.store.absolute(damaged))
    path.write_bytes(path.read_bytes()[:-9] + b"?" * 9)
    done = submit(spec, good, in_files=True, looked_at_here=False, python=python)
    assert done.exit_code == 3, done.errors
    failed = done.last(spec.build_id)
    assert (failed["event"], failed["retry"]) == ("failed", False)
    assert "does not match its checksum" in failed["error"]
    assert "segments requeue" in failed["error"]
    assert done.last(good.build_id)["event"] == "built"
    assert_recount(other, good, raw)


@pytest.mark.parametrize("in_files", [False, True], ids=["in memory", "in files"])
def test_a_segment_that_spark_cannot_build_does_not_cost_the_others(
    staging: Staging, submit: Callable[..., Any], in_files: bool
) -> None:
    good = [day(staging, number, 40) for number in (0, 2)]
    of = staging.of(DAYS[1])
    too_large = pa.concat_tables([huge_sum(), huge_sum()])  # together beyond the 38 digits of a sum
    part = of.part_of(1, "rs1", too_large, 2, PartRange(1, 0, 2))
    bad = of.spec("b1", part, covered={1: 2})
    done = submit(good[0][1], bad, good[1][1], in_files=in_files)
    assert done.exit_code == 4, done.errors
    assert any(line["event"] == "alone" for line in done.progress)
    failed = done.last("b1")
    assert (failed["event"], failed["retry"]) == ("failed", True)
    # of Spark, where a task adds the two rows or where what two tasks have added is added; and of our tasks
    said = "a sum needs more than 38 digits" if in_files else "ARITHMETIC_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE"
    assert re.search(said, failed["error"]), failed["error"]
    with pytest.raises(NotFound):
        history.read_manifest(of.store, bad.location)
    for of, spec, raw in good:
        assert done.last(spec.build_id)["event"] == "built"
        assert_recount(of, spec, raw)


def huge_sum() -> pa.Table:
    row = roll_up(raw_events(SEED, 9, 0, 1, DAYS[1]), CUBE.all_dimensions)
    place = row.schema.get_field_index("big__sum")
    kind = row.schema.field(place)
    return row.set_column(place, kind, pa.array([Decimal(9 * 10**37)], kind.type))
