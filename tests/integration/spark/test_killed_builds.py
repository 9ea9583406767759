"""spark-submit killed with -9 after each of its steps: no version or a whole one, and whole afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rtolap.base.errors import NotFound
from rtolap.cubes.format import history
from rtolap.model.build_spec import BuildSpec
from rtolap.model.cube import cuboids
from rtolap.model.offsets import PartRange

from tests.support.commands import kill_when
from tests.support.cubes.built import assert_nothing_else, assert_recount
from tests.support.cubes.staging import CUBE, SCHEMA, SEGMENT, Staging, raw_events

SEED = 20130103
SECOND = "20130102000000_20130103000000"
Command = Callable[..., tuple[list[str], dict[str, str]]]

# Progress line and how many of it: after the first "built" of two, one version is whole.
STEPS_IN_MEMORY = [
    ("verified", 2),
    ("read", 1),
    ("grouped", 1),
    ("cuboid", 1),
    ("cuboid", len(cuboids(CUBE))),
    ("counted", 1),
    ("built", 1),
]
STEPS_IN_FILES = [
    ("verified", 2),
    ("cuboid", 1),
    ("cuboid", len(cuboids(CUBE))),
    ("moved", 1),
    ("counted", 1),
    ("built", 1),
]


@pytest.mark.parametrize(
    ("in_files", "steps", "early"),
    [(False, STEPS_IN_MEMORY, 2), (True, STEPS_IN_FILES, 1)],
    ids=["in memory", "in files"],
)
def test_a_build_killed_after_any_step_leaves_no_half_version_and_is_built_whole_afterwards(
    staging: Staging,
    submit: Callable[..., Any],
    submit_command: Command,
    tmp_path: Path,
    in_files: bool,
    steps: list[tuple[str, int]],
    early: int,
) -> None:
    """After the `early` first steps a Spark job lies ahead; others may be over before the kill arrives."""
    raws = [raw_events(SEED, 0, 0, 200), raw_events(SEED, 1, 0, 100, SECOND)]
    stagings = [staging.of(SEGMENT), staging.of(SECOND)]
    specs = [
        of.spec(f"b{number}", of.part(1, "rs1", raw, PartRange(number, 0, raw.num_rows)),
                covered={number: raw.num_rows})
        for number, (of, raw) in enumerate(zip(stagings, raws, strict=True))
    ]  # fmt: skip
    file = tmp_path / "killed.json"
    file.write_bytes(msgspec.json.encode(specs))
    for event, count in steps:
        kill_after(event, count, *submit_command(str(file), in_files=in_files), tmp_path)
        for of, spec, raw in zip(stagings, specs, raws, strict=True):
            if is_finished(of, spec):
                assert (event, count) not in steps[:early]
                assert_recount(of, spec, raw)
                of.store.delete_tree(spec.location)  # the next step has something to build again
    done = submit(*specs, in_files=in_files)
    assert done.exit_code == 0, done.errors
    found = {
        spec.location: assert_recount(of, spec, raw)
        for of, spec, raw in zip(stagings, specs, raws, strict=True)
    }
    assert_nothing_else(staging, found, killed=True)


def is_finished(staging: Staging, spec: BuildSpec) -> bool:
    try:
        history.verify(staging.store, spec.location, SCHEMA)
    except NotFound:
        return False
    return True


def kill_after(event: str, count: int, command: list[str], environment: dict[str, str], folder: Path) -> None:
    """Run it until it has said so often that this was done."""
    seen = Counter[str]()

    def is_time(line: str) -> bool:
        seen[event] += f'"event":"{event}"' in line
        return seen[event] == count

    kill_when(is_time, command, environment, folder)
