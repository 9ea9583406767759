"""Merged sets through a real spark-submit, against a recount of the raw rows of all members by DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from rtolap.cubes.format import history
from rtolap.model.build_spec import BuildSpec
from rtolap.model.merging.intervals import interval_of
from rtolap.model.merging.specs import MergeMember, MergeSpec
from rtolap.model.offsets import PartRange

from tests.integration.spark.conftest import PROJECT, progress_lines, spark_submit
from tests.support.cubes.built import assert_merged
from tests.support.cubes.staging import CUBE, TABLE, Staging, raw_events
from tests.support.runs import spark_drivers

SEED = 20130102
DAYS = tuple(f"201301{day:02}000000_201301{day + 1:02}000000" for day in (3, 4, 9))
JOB = PROJECT / "spark_jobs" / "merge_segments.py"


def members(staging: Staging) -> list[tuple[BuildSpec, pa.Table]]:
    """Three days, of which one has no event."""
    found = []
    for place, day in enumerate(DAYS):
        of = staging.of(day)
        raw = raw_events(SEED, 0, 0, 0 if place == 1 else 200 + 50 * place, day)
        end = raw.num_rows or 5
        part = of.part(1, "rs1", raw, PartRange(0, 0, end))
        found.append((of.spec(f"b{place}", part, covered={0: end}, first_offsets={0: 0}), raw))
    return found


def merge_of(staging: Staging, built: list[tuple[BuildSpec, pa.Table]], merge: str) -> MergeSpec:
    month = interval_of("month", built[0][0].start_ms)
    return MergeSpec(
        merge=merge,
        cube=CUBE.name,
        level="month",
        start_ms=month.start_ms,
        end_ms=month.end_ms,
        members=tuple(
            MergeMember(spec.segment, spec.version, spec.location, raw.num_rows) for spec, raw in built
        ),
        table_definition=TABLE,
        cube_definition=CUBE,
        object_store=staging.uri,
        folder=f"merged/{CUBE.name}/month/{merge}",
    )


def submit_merges(
    folder: Path, *specs: MergeSpec, apart: bool = False, **options: Any
) -> tuple[int, list[dict[str, Any]]]:
    file = folder / "merges.json"
    file.write_bytes(msgspec.json.encode(specs))
    command, environment = spark_submit(str(file), job=JOB, **options)
    run = spark_drivers.run_apart if apart else spark_drivers.run
    done = run(command, environment)
    progress = progress_lines(done.stdout)
    assert progress, (done.stdout + done.stderr)[-4000:]
    return done.returncode, progress


@pytest.mark.parametrize(
    "options",
    [{}, {"in_files": True}, {"in_files": True, "python": False}],
    ids=["memory", "pieces", "operators"],
)
def test_a_set_equals_a_recount_of_its_members_and_a_repetition_changes_nothing(
    staging: Staging, submit: Callable[..., Any], tmp_path: Path, options: dict[str, bool]
) -> None:
    built = members(staging)
    done = submit(*(spec for spec, _ in built))
    assert done.exit_code == 0, done.errors
    spec = merge_of(staging, built, "0" * 32)
    bad = merge_of(staging, built, "1" * 32)
    counted_wrong = msgspec.structs.replace(bad.members[2], events=bad.members[2].events + 1)
    bad = msgspec.structs.replace(bad, members=(*bad.members[:2], counted_wrong))
    code, progress = submit_merges(tmp_path, spec, bad, **options)
    assert code == 3
    last = {line["build_id"]: line for line in progress}
    assert last[spec.merge]["event"] == "merged", last[spec.merge]
    assert "not of the member that is to be merged" in last[bad.merge]["error"]
    assert not staging.store.exists(history.manifest_path(bad.location))
    assert_merged(staging, spec, pa.concat_tables([raw for _, raw in built]))
    manifest = staging.store.read(history.manifest_path(spec.location))
    files = [file.path for file in staging.store.list("merged")]
    if not options:
        code, progress = submit_merges(tmp_path, spec, apart=True)
        assert (code, progress[-1]["event"]) == (0, "merged")
        assert staging.store.read(history.manifest_path(spec.location)) == manifest
        assert [file.path for file in staging.store.list("merged")] == files
