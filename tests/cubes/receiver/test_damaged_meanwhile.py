"""Of a fragment that is damaged at any moment after it was opened, nothing is merged or reaches history."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rtolap.base.errors import Corrupted
from rtolap.cubes.format.staged import read_staged_manifest
from rtolap.cubes.receiver import upload
from rtolap.cubes.receiver.local import fragments
from rtolap.cubes.receiver.local.fragments import MergeJob
from rtolap.model.cube import ROWS

from tests.support.cubes.builders import START_MS, WINDOW_MS
from tests.support.cubes.stepped_receiver import Receiver
from tests.support.cubes.two_segments import TwoSegments
from tests.support.hostile.damage import damage_count
from tests.support.seeds import so_many

MOMENTS = ("before it is read", "before a group is merged", "when a group was merged", "never")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[TwoSegments]:
    """All events are in fragments, two of the first segment and one of the second."""
    world = TwoSegments(tmp_path)
    for more in (0, 4):
        for partition in world.cluster.log:
            world.send(partition, START_MS, more)
        for receiver in world.receivers.values():
            world.read(receiver)
            receiver.core.checkpoint()
    yield world
    world.cluster.close()


class Damage:
    """Damages a fragment, which is drawn, at its moment."""

    def __init__(self, receiver: Receiver, moment: str, dice: random.Random) -> None:
        self._files = sorted(receiver.core.file.fragments.glob("*.arrow"))
        self._moment, self._dice = moment, dice
        self.file: Path | None = None
        self.at(MOMENTS[0])

    def at(self, moment: str) -> None:
        if moment == self._moment and self.file is None:
            self.file = self._dice.choice(self._files)
            damage_count(self.file)

    def around(self, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Do it around the module's merging of tables."""
        merge_tables = module.merge_tables

        def merged(*arguments: Any) -> pa.Table:
            self.at(MOMENTS[1])
            table = merge_tables(*arguments)
            self.at(MOMENTS[2])
            return table

        monkeypatch.setattr(module, "merge_tables", merged)


def drawn(count: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("moment", "seed"), [(m, s) for m in MOMENTS for s in range(count)])


@pytest.mark.seeded
@drawn(so_many(4, 4))
def test_a_part_of_a_damaged_fragment_is_no_part_of_the_record(
    world: TwoSegments, monkeypatch: pytest.MonkeyPatch, moment: str, seed: int
) -> None:
    receiver = close_all(world)
    expected = events_of_parts(world)
    damage = Damage(receiver, moment, random.Random(seed))
    damage.around(upload, monkeypatch)
    uploaded, problem = 0, ""
    try:
        while receiver.upload():
            uploaded += 1
            receiver.look()
    except Corrupted as error:
        problem = str(error)
    if damage.file is None:
        assert (uploaded, problem) == (len(world.records), "")
    else:
        assert f"{damage.file.stem}.fragment was damaged after it was opened" in problem
    parts = [part for record in world.records for part in record.parts]
    assert len(parts) == uploaded
    for record in world.records:
        for part in record.parts:
            assert counted(world, part.path) == part.events == expected[record.start_ms]


@pytest.mark.seeded
@drawn(so_many(4, 4))
def test_a_damaged_fragment_is_merged_into_no_other(
    world: TwoSegments, monkeypatch: pytest.MonkeyPatch, moment: str, seed: int
) -> None:
    receiver = world.receivers["left-0"]
    settings = replace(receiver.core.settings, fragments_max=1)
    job = fragments.merge_job(receiver.core.state.segments, settings)
    assert job is not None
    damage = Damage(receiver, moment, random.Random(seed))
    damage.around(fragments, monkeypatch)
    folder = receiver.core.file.fragments
    try:
        merged = fragments.merge(receiver.schema, folder, job)
    except Corrupted as error:
        named = {name for name in names(job) if name in str(error)}
    else:
        named = set()
        assert damage.file is None or damage.file.stem not in names(job)
        assert sum(merged.table.column(ROWS).to_pylist()) == sum(table.events for table in job.group)
    assert named == ({damage.file.stem} & names(job) if damage.file is not None else set())


def close_all(world: TwoSegments) -> Receiver:
    """Close both segments at all there is; the leader that uploads its parts."""
    for receiver in world.receivers.values():
        receiver.core.force.update(receiver.core.state.segments)
    for receiver in [*world.receivers.values()] * 2:
        world.read(receiver)
        receiver.close_due()
    for receiver in world.receivers.values():
        world.read(receiver)
    return world.receivers["left-0"]


def names(job: MergeJob) -> set[str]:
    return {table.fragment.info.name for table in job.group if table.fragment is not None}


def events_of_parts(world: TwoSegments) -> dict[int, int]:
    """Half of the partitions are of a replica set."""
    half = len(world.cluster.log) // 2
    return {START_MS: half * 14, START_MS + WINDOW_MS: half * 5}


def counted(world: TwoSegments, path: str) -> int:
    store = world.cluster.store
    tables = [
        pq.read_table(io.BytesIO(store.read(f"{path}/{entry.name}")))
        for entry in read_staged_manifest(store, path).files
    ]
    return sum(sum(table.column(ROWS).to_pylist()) for table in tables)
