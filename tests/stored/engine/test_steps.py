"""A power cut in every numbered step, and a full disk at every operation, leave a tablet that goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from rtolap.base.errors import NotFound, Unavailable
from rtolap.model.stored.schema import initial_schema
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.stored.engine.tablet import Tablet

from tests.support.seeds import so_many
from tests.support.stored.mortal_disk import Crash, MortalDisk
from tests.support.stored.tablet_rows import batch_of, random_row
from tests.support.stored.tablet_run import TabletRun

TABLE = StoredTable(
    database="d",
    name="t",
    model="unique",
    keys=("id",),
    columns=(StoredColumn("id", "int"), StoredColumn("city", "string"), StoredColumn("at", "int")),
    sequence_column="at",
)
ENDLESS = 200
MERGING = 98  # a seed of which two rounds write little, merge, and go through all steps but the sixteenth
SEEDS = so_many(2)


def state_history(run: TabletRun, rounds: int = 6) -> None:
    """Goes through all numbered steps."""
    for _ in range(rounds):
        run.step(run.load)
        run.step(run.load)
        run.step(run.abort)
        run.step(run.publish)
        run.step(run.publish)
        run.step(run.compact)


@pytest.mark.seeded
@pytest.mark.parametrize("step", range(1, 19))
def test_a_power_cut_in_a_step_is_recovered_from(tmp_path: Path, step: int) -> None:
    crashes = 0
    for seed in range(SEEDS):
        run = TabletRun(tmp_path / str(seed), "unique", seed, TABLE)
        state_history(run, rounds=3)
        run.disk.die_in_step = step
        state_history(run)
        crashes += run.crashes
        run.end()
    assert crashes >= SEEDS * 2 // 3, "the state_history does not come to the step"


def test_a_disk_that_is_full_at_any_operation_changes_nothing(tmp_path: Path) -> None:
    """The next operation that is tried is the first one after that which failed: others cannot fail."""
    failed, at = 0, 1
    while True:
        run = TabletRun(tmp_path / str(at), "unique", MERGING, TABLE)
        made = run.disk.operations
        run.disk.fail_at = made + at
        state_history(run, rounds=2)
        is_over, at = run.disk.fail_at is not None, run.disk.failed_at - made + 1
        failed += run.failures
        run.end()
        if is_over:  # the state_history was, before the operation that was to fail
            break
        assert at < ENDLESS * 10
    assert failed > 20
    assert run.disk.seen == set(range(1, 19)) - {16}


def test_a_crash_while_a_tablet_is_made_leaves_room_for_another_try(tmp_path: Path) -> None:
    for at in range(1, ENDLESS):
        from_scratch = tmp_path / str(at)
        from_scratch.mkdir()
        if _made_at_last(from_scratch, at):
            return
    pytest.fail("making a tablet never came to an end")


def _made_at_last(folder: Path, die_at: int) -> bool:
    disk = MortalDisk(folder / "graves", die_at)
    disk.die_at = die_at
    root = folder / "tablet"
    try:
        Tablet.create(root, initial_schema(TABLE), disk=disk).close()
        return True
    except Crash:
        disk.recover()
    try:
        tablet = Tablet.open(root, disk=disk)
    except NotFound:
        tablet = Tablet.create(root, initial_schema(TABLE), disk=disk)
    assert tablet.version == 0
    tablet.close()
    return False


def test_what_a_full_disk_says(tmp_path: Path) -> None:
    run = TabletRun(tmp_path, "unique", 3, TABLE)
    run.disk.fail_at = run.disk.operations + 3
    transaction = run.tablet.begin(1_000)
    transaction.add_rows(batch_of([random_row(run.random, run.tablet.schema)], run.tablet.schema))
    with pytest.raises(Unavailable, match=r"the disk is full.*nothing that is visible has changed"):
        transaction.prepare()
    run.check()
