"""The run of a share: its lease is free as soon as the run is over, even one that never began."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rtolap.base.errors import NotLeader, NotYet, Unavailable
from rtolap.model.loader import Loader, LoaderProcesses
from rtolap.stored.loader.job import LEASE_MS, JobResources, SharedResources
from rtolap.stored.loader.shares.leader import Leader, TopicView
from rtolap.stored.loader.shares.member import Member
from rtolap.stored.loader.shares.share_run import ShareRun, begin_share
from rtolap.stored.metastore.load_jobs import LoadJobs
from rtolap.stored.metastore.load_shares import LoadShare, LoadShares
from rtolap.stored.metastore.offsets import OffsetsRecords

from tests.support.loader.stepped_loader import World
from tests.support.stored.ledgers import open_ledger
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_consumer import MemoryConsumer


class Divided:
    """A job of two shares in a stepped world."""

    def __init__(self, tmp_path: Path) -> None:
        self.clock = ManualClock(1_000_000)
        self.ledger = open_ledger(tmp_path / "ledger.db", clock=self.clock, sleep=lambda _: None)
        self.world = World(self.ledger, self.clock)
        self.world.create(processes=LoaderProcesses(min=1, max=2, shares=2))
        self.shares = LoadShares(self.ledger)
        resources = self.resources()
        topic = TopicView(resources, Loader(name="j", topic="t", database="d", table="t"))
        leader = Leader("j", "p0", resources, topic.log)
        for _ in range(10):
            leader.round()
        leader.release()

    def resources(self, clock: ManualClock | None = None) -> SharedResources:
        """Return those of a process, which has a clock of its own where one is given."""
        world = self.world

        def open_consumer(loader: Loader) -> MemoryConsumer:
            return MemoryConsumer(world.broker, loader.topic)

        job = JobResources(
            world.jobs, world.records, world.sink, open_consumer, world.box, clock or self.clock
        )
        return SharedResources(job, self.shares, OffsetsRecords(self.ledger, of_shares=True))

    def share(self, number: int) -> LoadShare:
        return self.shares.division("j").shares[number]


@pytest.fixture
def divided(tmp_path: Path) -> Any:
    here = Divided(tmp_path)
    with here.ledger:
        yield here


def test_others_need_not_wait_for_a_share_whose_run_has_not_begun(divided: Divided) -> None:
    divided.world.sink.down = True
    with pytest.raises(Unavailable):
        begin_share(divided.share(0), 2, "p1", divided.resources())
    assert not divided.share(0).owned
    divided.world.sink.down = False
    work = begin_share(divided.share(0), 2, "p2", divided.resources())
    assert work.ownership.lease.owner == "p2"
    with pytest.raises(NotYet):
        begin_share(divided.share(0), 2, "p1", divided.resources())


def test_a_run_that_is_given_up_before_it_began_ends_and_leaves_its_share_free(divided: Divided) -> None:
    divided.world.sink.down = True
    resources = divided.resources()
    run = ShareRun(divided.share(1), lambda share: begin_share(share, 2, "p1", resources))
    run.stop()
    run.join(60.0)
    assert run.code is not None
    assert not divided.share(1).owned


def test_others_need_not_wait_for_a_job_whose_run_has_not_begun(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    with open_ledger(tmp_path / "ledger.db", clock=clock, sleep=lambda _: None) as ledger:
        world = World(ledger, clock)
        world.create()
        world.sink.down = True
        with pytest.raises(Unavailable):
            world.begin("p1")
        world.sink.down = False
        assert world.begin("p2").ownership.lease.owner == "p2"


def test_a_leader_whose_job_another_one_has_divided_ends_to_lead_and_not_unexpectedly(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    with open_ledger(tmp_path / "ledger.db", clock=clock, sleep=lambda _: None) as ledger:
        world = World(ledger, clock)
        world.create(processes=LoaderProcesses(min=1, max=2, shares=2))
        before = world.begin("p1")
        assert before.last_record().sequence_id == 0
        clock.advance_ms(LEASE_MS + 1)
        after = LoadJobs(ledger).leases.acquire("j", "p2", LEASE_MS)
        assert LoadShares(ledger).divide(after, 2, label=lambda n: f"j_1_s{n}_0", config=lambda _: "{}")
        with pytest.raises(NotLeader):
            before.last_record()


@pytest.mark.parametrize("step_ms", [-365 * 86_400_000, -3_600_000, 3_600_000])
def test_a_process_whose_clock_is_set_keeps_its_place_and_leads_on(divided: Divided, step_ms: int) -> None:
    clock = ManualClock(divided.clock.now_ms())
    resources = divided.resources(clock)
    topic = TopicView(resources, Loader(name="j", topic="t", database="d", table="t"))
    leader = Leader("j", "p3", resources, topic.log)
    member = Member("j", 0, "p3", resources, leader, NoRuns())
    assert member.round()
    clock.set_by_ms(step_ms)
    for _ in range(20):
        for each in (clock, divided.clock):
            each.advance_ms(LEASE_MS // 2)
        assert member.round()
        assert leader.ownership is not None
        assert [process.number for process in member.division.processes] == [0]


class NoRuns:
    """Runs of shares that take nothing."""

    def take(self, share: LoadShare) -> None:
        pass

    def give_up(self, number: int) -> None:
        pass

    def ended(self) -> set[int]:
        return set()

    def forget(self, number: int) -> None:
        pass
