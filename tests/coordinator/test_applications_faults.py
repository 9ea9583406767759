"""Seeded runs of one application under faults, against an oracle: never a regression, never early.

Clients read hosts, keep work back and report; requests and answers are lost, old batches come again in any
order and with old epochs; leaders die before or after what they persist, or lose their session and go on
for a while; hosts are added and removed. The oracle knows what was really read: the slowest listed host and
the oldest work of any unit. What is published at any time is at most the largest value the oracle ever had,
and never falls.
"""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest
from rtolap.base.errors import NotLeader
from rtolap.coordinator.applications.running import RunningApplication
from rtolap.metadata.applications import ApplicationRecords
from rtolap.model.application import (
    Application,
    ApplicationSource,
    HostList,
    HostPrecise,
    Operator,
    Registry,
    Rule,
    Sink,
)
from rtolap.protocols.watermark.messages import HostsChange, ReportAnswer, ReportBatch, UnitReport
from rtolap.watermark_client.pending import Pending

from tests.support.cubes.mortal_coordinator import Killed, MortalStore
from tests.support.twins.clock import ManualClock
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

START_MS = 1_000_000_000_000
DAY_MS = 86_400_000
STEPS = 120
CONSUMERS = 3
LOGS = Application(
    name="logs",
    sources=(
        ApplicationSource(
            name="web",
            rule=Rule(host_precise=HostPrecise(0)),
            hosts=HostList(registry=Registry(DAY_MS)),
            unit_lease_ms=DAY_MS,
        ),
    ),
    operators=(Operator("sessions", DAY_MS),),
    sinks=(Sink("store", DAY_MS),),
    edges=(("web", "sessions"), ("sessions", "store")),
)


class Consumer:
    """A client by hand, and a unit of `sessions` too. Reads two partitions: four hosts log to one of them,
    one more to a partition of the next consumer as well. `read`: (host, partition) → latest."""

    def __init__(self, number: int) -> None:
        self.name = f"c{number}"
        first, second = 2 * number, 2 * number + 1
        shared = {
            (f"shared-{number}", first): START_MS,
            (f"shared-{(number - 1) % CONSUMERS}", second): START_MS,
        }
        self.read = {(f"{self.name}-h{n}", first + n % 2): START_MS for n in range(4)} | shared
        self.work_ms: int | None = None
        self.pending = Pending()
        self.generation = 0
        self.sequence = self.epoch = 0
        self.begins = True
        self.unsent: ReportBatch | None = None

    def report(self, hosts: list[tuple[str, int]]) -> None:
        self.pending.work(UnitReport("sessions", self.name, 0, self.work_ms))
        for host, partition in hosts:
            instant, one = np.array([self.read[host, partition]]), np.array([1])
            self.pending.progress("web", partition, self.generation, [host], instant, one, 2 * CONSUMERS)

    def batch(self) -> ReportBatch:
        if self.unsent is None:
            self.sequence += 1
            if self.begins:
                self.pending.begin()
            self.unsent = self.pending.take_report(self.name, self.sequence, self.epoch, self.begins)
        return self.unsent

    def answered(self, answer: ReportAnswer) -> None:
        assert answer.refused == () or all("generation" in one.why for one in answer.refused)
        self.unsent = None
        self.begins, self.epoch = answer.resend, answer.epoch


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = ManualClock(START_MS + DAY_MS)
        self.ensemble = MemoryEnsemble()
        self.stores: list[MortalStore] = []
        first = MemoryStore(self.ensemble)
        ApplicationRecords(first).create(LOGS)
        first.close()
        self.former: list[RunningApplication] = []
        self.consumers = [Consumer(n) for n in range(CONSUMERS)]
        self.extra: list[str] = []  # listed hosts that were never read
        self.said: list[ReportBatch] = []
        self.seen_ms = self.oracle_ms = 0
        for (
            one
        ) in self.consumers:  # a host that logs to several partitions has to be seen on each of them first
            one.report(sorted(one.read))
        self.leader = self.begin()
        self.change("register", sorted({host for one in self.consumers for host, _ in one.read}))

    def begin(self) -> RunningApplication:
        self.stores.append(MortalStore(self.ensemble))
        return RunningApplication(LOGS, ApplicationRecords(self.stores[-1]), self.clock)

    def take_over(self) -> None:
        self.former.append(self.leader)
        for store in self.stores:
            store.live_on()
        self.leader = self.begin()

    def change(self, action: str, hosts: list[str]) -> None:
        self.leader.change_hosts(HostsChange(level="web", action=action, hosts=tuple(hosts)))  # type: ignore[arg-type]

    # -- steps ------------------------------------------------------------------------------------------

    def read(self) -> None:
        one = self.random.choice(self.consumers)
        if one.work_ms is None and self.random.random() < 0.4:
            one.work_ms = min(one.read.values())  # an event of the slowest host is taken in, and not finished
        elif self.random.random() < 0.5:
            one.work_ms = None
        hosts = self.random.sample(sorted(one.read), self.random.randint(1, 4))
        for host in hosts:
            one.read[host] += self.random.randint(0, 5000)
        one.report(hosts)

    def restart_consumer(self) -> None:
        """Reads again from a while ago: the new generation has seen nothing yet."""
        one = self.random.choice(self.consumers)
        one.generation += 1
        one.report(sorted(one.read))

    def send(self) -> None:
        one = self.random.choice(self.consumers)
        batch = one.batch()
        self.said.append(batch)
        lost = self.random.random()
        if lost < 0.15:
            return
        answer = self.leader.report(batch)
        if lost > 0.3:
            one.answered(answer)

    def repeat(self) -> None:
        """Old batches, to the leader or to one that was."""
        if not self.said:
            return
        to = self.random.choice([self.leader, *self.former[-1:]])
        for batch in self.random.choices(self.said, k=3):
            try:
                to.report(batch)
            except NotLeader:
                assert to is not self.leader

    def tick(self) -> None:
        if self.random.random() < 0.25:
            self.stores[-1].die(0, self.random.choice(("before", "after")))
        try:
            self.leader.tick()
        except Killed:
            self.take_over()
        self.stores[-1].live_on()

    def lose_session(self) -> None:
        self.take_over()
        former = self.former[-1]
        before = former.published
        self.leader.tick()
        with contextlib.suppress(NotLeader):
            former.tick()
        assert former.published.marks == before.marks, "who leads no more publishes nothing new"

    def grow(self) -> None:
        name = f"extra-{len(self.extra)}-{self.random.random()}"
        self.extra.append(name)
        self.change("register", [name])

    def shrink(self) -> None:
        if self.extra:
            self.change("remove", [self.extra.pop()])

    # -- oracle -----------------------------------------------------------------------------------------

    def check(self) -> None:
        if not self.extra:
            slowest = min(min(one.read.values()) for one in self.consumers)
            work = [one.work_ms for one in self.consumers if one.work_ms is not None]
            self.oracle_ms = max(self.oracle_ms, min([slowest, *work]))
        published = self.leader.published.marks.global_ms or 0
        assert published >= self.seen_ms, "a regression"
        assert published <= self.oracle_ms, "early"
        self.seen_ms = published

    def finish(self) -> int:
        """Everything is read to one instant, and told."""
        while self.extra:
            self.shrink()
        end_ms = max(max(one.read.values()) for one in self.consumers) + 1
        for one in self.consumers:
            one.work_ms = None
            one.read = dict.fromkeys(one.read, end_ms)
            one.report(sorted(one.read))
        self.check()
        for one in self.consumers:
            for _ in range(4):
                one.answered(self.leader.report(one.batch()))
        self.leader.tick()
        self.check()
        return end_ms

    def close(self) -> None:
        for store in self.stores:
            store.close()


STEPS_OF = {
    World.read: 30,
    World.send: 40,
    World.tick: 15,
    World.repeat: 6,
    World.grow: 3,
    World.shrink: 4,
    World.restart_consumer: 2,
    World.lose_session: 2,
}


@pytest.mark.parametrize("seed", range(60))
def test_no_fault_makes_a_watermark_fall_or_come_early(seed: int) -> None:
    world = World(seed)
    try:
        steps = world.random.choices([*STEPS_OF], weights=[*STEPS_OF.values()], k=STEPS)
        for step in [*steps[: STEPS // 2], World.lose_session, *steps[STEPS // 2 :]]:
            step(world)
            world.check()
        assert world.finish() == world.seen_ms, "and in the end it is where everything was read to"
    finally:
        world.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_leader_killed_between_persisting_and_publishing_is_followed_by_one_that_knows(when: str) -> None:
    world = World(0)
    try:
        for one in world.consumers:
            one.report(sorted(one.read))
            one.answered(world.leader.report(one.batch()))
            one.answered(world.leader.report(one.batch()))
        before = world.leader.published.marks.global_ms
        world.stores[-1].die(0, when)  # type: ignore[arg-type]
        with pytest.raises(Killed):
            world.leader.tick()
        assert world.leader.published.marks.global_ms == before, "nobody was told"
        world.take_over()
        expected = START_MS if when == "after" else before
        assert world.leader.published.marks.global_ms == expected
    finally:
        world.close()
