"""Builds through a real spark-submit, against a recount of the raw rows by DuckDB."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from rtolap.base.errors import NotFound
from rtolap.cubes.format import history
from rtolap.model.build_spec import BuildPart, BuildSpec
from rtolap.model.cube import AggregationGroup, cuboids
from rtolap.model.offsets import PartRange

from tests.support.cubes.built import assert_recount
from tests.support.cubes.staging import CUBE, Staging, raw_events
from tests.support.waiting import patience_s

SEED = 20130101
Command = Callable[..., tuple[list[str], dict[str, str]]]


def two_versions(staging: Staging) -> tuple[BuildSpec, pa.Table, BuildSpec, pa.Table]:
    """Version 1 from two replica sets over three partitions; version 2 adds late events to two of them."""
    p0, p1a = raw_events(SEED, 0, 100, 500), raw_events(SEED, 1, 0, 300)
    p1b, p2 = raw_events(SEED, 1, 300, 350), raw_events(SEED, 2, 7, 407)
    late = pa.concat_tables([raw_events(SEED, 0, 500, 520), raw_events(SEED, 2, 407, 410)])
    one = staging.part(1, "rs1", pa.concat_tables([p0, p1a]), PartRange(0, 100, 500), PartRange(1, 0, 300))
    two = staging.part(1, "rs2", pa.concat_tables([p1b, p2]), PartRange(1, 300, 350), PartRange(2, 7, 407))
    none = staging.part(1, "rs3", p0.slice(0, 0), PartRange(2, 407, 409))
    covered = {0: 500, 1: 350, 2: 409}
    first = staging.spec("b1", one, two, none, covered=covered, first_offsets={0: 100, 1: 0, 2: 7})
    delta = staging.part(2, "rs1", late, PartRange(0, 500, 520), PartRange(2, 409, 410))
    second = staging.spec(
        "b2",
        delta,
        version=2,
        previous_location=first.location,
        previous_covered=covered,
        covered={0: 520, 1: 350, 2: 410},
    )
    raw = pa.concat_tables([p0, p1a, p1b, p2])
    return first, raw, second, pa.concat_tables([raw, late])


@pytest.mark.parametrize("in_files", [False, True], ids=["in memory", "in files"])
def test_both_versions_equal_a_recount_and_a_repeated_build_changes_nothing(
    staging: Staging, submit: Callable[..., Any], in_files: bool
) -> None:
    first, raw, second, all_raw = two_versions(staging)
    done = submit(first, second, in_files=in_files)
    assert done.exit_code == 0, done.errors
    assert_recount(staging, first, raw)
    assert_recount(staging, second, all_raw)
    names = [file.path for file in staging.store.list("history")]
    assert all(name.endswith((".parquet", "/manifest.json")) for name in names)
    manifest = staging.store.read(history.manifest_path(first.location))

    rebuilt = msgspec.structs.replace(  # a version rebuilt from itself alone
        second, build_id="b3", version=3, parts=(), previous_location=second.location,
        previous_covered=second.covered, location=second.location.replace("v2-b2", "v3-b3"),
    )  # fmt: skip
    whole = staging.part(
        4, "rs1", all_raw, PartRange(0, 100, 520), PartRange(1, 0, 350), PartRange(2, 7, 410)
    )
    recreated = staging.spec(  # one whose base cuboid is lost: the part holds all of the segment
        "b4", whole, version=4, base_lost=True, covered=second.covered, first_offsets={0: 100, 1: 0, 2: 7}
    )
    # once as an operator starts it
    again = submit(first, rebuilt, recreated, in_files=in_files, apart=not in_files)
    assert again.exit_code == 0, again.errors
    assert again.last("b1")["event"] == "built"
    assert staging.store.read(history.manifest_path(first.location)) == manifest
    assert [file.path for file in staging.store.list("history")][: len(names)] == names
    assert_recount(staging, rebuilt, all_raw)
    assert_recount(staging, recreated, all_raw)


def test_versions_are_built_from_those_of_other_groups(staging: Staging, submit: Callable[..., Any]) -> None:
    """The cube is altered after version 1: late events, and a rebuild, are written by the groups of then."""
    first, raw, second, all_raw = two_versions(staging)
    fewer = msgspec.structs.replace(CUBE, aggregation_groups=())
    other = msgspec.structs.replace(CUBE, aggregation_groups=(AggregationGroup(("day", "hour_start")),))
    second = msgspec.structs.replace(second, cube_definition=fewer)
    rebuilt = msgspec.structs.replace(
        second, build_id="b3", version=3, parts=(), previous_location=second.location,
        previous_covered=second.covered, location=second.location.replace("v2-b2", "v3-b3"),
        cube_definition=other,
    )  # fmt: skip
    assert len({cuboids(each) for each in (CUBE, fewer, other)}) == 3
    done = submit(first, second, rebuilt)
    assert done.exit_code == 0, done.errors
    assert_recount(staging, first, raw)
    assert_recount(staging, second, all_raw, cube=fewer)
    assert_recount(staging, rebuilt, all_raw, cube=other)


def test_a_bad_input_fails_its_own_build_only_and_promotes_nothing(
    staging: Staging, submit: Callable[..., Any]
) -> None:
    def part(name: str, start: int, end: int) -> BuildPart:
        return staging.part(1, name, raw_events(SEED, 0, start, end), PartRange(0, start, end))

    good = part("good", 0, 60)
    flipped, missing, cut = part("flipped", 0, 50), part("missing", 0, 50), part("cut", 0, 50)
    file = staging.folder / flipped.path / "part-0.parquet"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    (staging.folder / missing.path / "part-0.parquet").unlink()
    manifest = staging.folder / cut.path / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-20])
    wrong = {
        "flipped": (staging.spec("flipped", flipped, covered={0: 50}), "does not match its checksum"),
        "missing": (staging.spec("missing", missing, covered={0: 50}), "part-0.parquet is missing"),
        "cut": (staging.spec("cut", cut, covered={0: 50}), "does not match its checksum"),
        "gap": (staging.spec("gap", good, part("late", 61, 70), covered={0: 70}), "a gap"),
        "overlap": (staging.spec("overlap", good, part("twice", 59, 70), covered={0: 70}), "an overlap"),
        "short": (staging.spec("short", good, covered={0: 61}), "parts up to offset 61"),
        "gone": (
            staging.spec("gone", version=2, previous_location="history/x/y/v1-z", covered={}),
            "no file history/x/y/v1-z/manifest.json",
        ),
    }
    done = submit(*(spec for spec, _ in wrong.values()), staging.spec("fine", good, covered={0: 60}))
    assert done.exit_code == 3, done.errors
    for build_id, (spec, message) in wrong.items():
        line = done.last(build_id)
        assert line["event"] == "failed"
        assert line["retry"] is False
        assert message in line["error"]
        with pytest.raises(NotFound):
            history.read_manifest(staging.store, spec.location)
    assert done.last("fine")["event"] == "built"


def test_an_unreadable_spec_is_a_usage_error(submit_command: Command, tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    file.write_text('{"build_id": "b"}')
    command, environment = submit_command(str(file))
    done = subprocess.run(
        command,
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=patience_s(60),
        check=False,
    )
    assert done.returncode == 2
    assert "is not a build specification" in done.stdout  # spark-submit joins the two streams of its child
