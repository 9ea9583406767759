"""A plan in stages carried out on real brokers: two disks without room exchange replicas by a third."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rtolap.fleet.moves.states import PlanState
from rtolap.fleet.planning.disks import plan_disks
from rtolap.fleet.snapshot.model import FleetSnapshot
from rtolap.stack.artifacts import JavaArtifacts

from tests.integration.fleet.conftest import world_of
from tests.support.fleet.brokers import Brokers
from tests.support.fleet.hand_made import state_after
from tests.support.fleet.moved_fleet import MovedFleet, moved_fleet
from tests.support.waiting import until

pytestmark = pytest.mark.integration

THOUSANDTH = 20_000  # of the smaller disks, in bytes
REPLICAS = [[1], [1], [2], [2], [2], [2], [3]]
SIZES = [440, 440, 200, 200, 200, 200, 6720]  # in thousandths
DISKS = {1: 1000, 2: 1000, 3: 8000}


@pytest.fixture
def fleet(java: JavaArtifacts, zookeeper: str, unique_name: str, tmp_path: Path) -> Iterator[MovedFleet]:
    sizes = [size * THOUSANDTH for size in SIZES]
    with (
        tempfile.TemporaryDirectory(prefix="rtolap-stages-") as folder,
        Brokers(Path(folder), java, disks=1) as brokers,
        moved_fleet(brokers, world_of(brokers, unique_name), zookeeper, tmp_path, REPLICAS, sizes) as made,
    ):
        yield made


def _with_small_disks(taken: FleetSnapshot) -> FleetSnapshot:
    replicas, log_dirs = taken.replicas, taken.log_dirs
    used = np.bincount(replicas.log_dirs, replicas.size_bytes, minlength=len(log_dirs)).astype(np.int64)
    brokers = taken.brokers.ids[log_dirs.brokers]
    total = np.array([DISKS[int(broker)] * THOUSANDTH for broker in brokers], np.int64)
    return replace(taken, log_dirs=replace(log_dirs, total_bytes=total, usable_bytes=total - used))


def test_two_full_disks_exchange_replicas_stage_by_stage_while_records_are_written(fleet: MovedFleet) -> None:
    """At no moment does a disk hold more than it could, with all that is being copied to it."""
    taken = _with_small_disks(fleet.whole_snapshot())
    plan = plan_disks(taken)
    assert plan.stage_count > 1, plan.why
    stages_at_work: list[int] = []

    def carry_out() -> None:
        plan_id, _ = fleet.submit(5_000_000, plan)

        def ended() -> bool:
            record = fleet.record(plan_id)
            at_work = {int(plan.stages[number]) for number in record.active}
            assert len(at_work) <= 1, f"stages {at_work} at the same time"
            stages_at_work.extend(at_work)
            for disk, used_bytes in fleet.used_bytes().items():
                assert used_bytes <= DISKS[int(disk.split(":")[0])] * THOUSANDTH, disk
            return record.state is PlanState.ENDED

        until(ended, plan_id, timeout_s=150, poll_s=0.05)
        assert set(fleet.record(plan_id).outcomes) == {"d"}

    fleet.recounted(carry_out, value_bytes=0)
    assert stages_at_work == sorted(stages_at_work)
    assert len(set(stages_at_work)) > 1
    now = fleet.replicas()
    expected = state_after(plan, taken)
    assert now == _brokers_of(expected, fleet.topic)
    assert not len(plan_disks(_with_small_disks(fleet.whole_snapshot())))
    fleet.check_nothing_left()


def _brokers_of(state: FleetSnapshot, topic: str) -> list[tuple[int, ...]]:
    partitions = np.flatnonzero(state.partitions.topics == state.topics.names.index(topic))
    rows = state.partitions.first_replicas
    brokers = state.brokers.ids[state.replicas.brokers]
    return [tuple(brokers[rows[number] : rows[number + 1]].tolist()) for number in partitions]
