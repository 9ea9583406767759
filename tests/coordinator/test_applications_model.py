"""The whole server of an application against an obvious slow model of it, step by step, in seeded runs.

Reports come repeated, reordered, with old epochs and former generations; answers get lost; hosts register,
drain, leave and return, leases of hosts and units end; leaders lose their session or die before or after
what they persist; former leaders go on; people approve windows; the definition changes, its rule too. After
every step what is published, counted, refused and awaited is what the model says, and nothing published has
fallen; by the deficit rule, whose rates the model estimates as well, so are the bounds that are stated.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from rtolap.base.errors import NotFound, NotLeader
from rtolap.coordinator.applications.running import RunningApplication
from rtolap.metadata.applications import ApplicationRecords
from rtolap.model.application import (
    Application,
    ApplicationSource,
    Deficit,
    HostList,
    HostPrecise,
    Operator,
    Partitions,
    Registry,
    Rule,
    Sink,
)
from rtolap.protocols.watermark.messages import (
    ApprovalRequest,
    HostsChange,
    ReportBatch,
    SourceReport,
    UnitReport,
)

from tests.support.cubes.mortal_coordinator import Killed, MortalStore
from tests.support.seeds import so_many
from tests.support.twins.clock import ManualClock
from tests.support.twins.metadata import MemoryEnsemble
from tests.support.watermarks.application_model import Kept, SlowServer

RUNS, SEEDS, STEPS = so_many(500, 1_300), 10, 11
START_MS = 1_000_000_000_000
LEASE_MS, GRACE_MS, UNIT_LEASE_MS = 60_000, 30_000, 20_000
HOSTS = ("a", "b", "c", "d")
PARTITIONS = 3


def definition(rule: Rule, *, alerts: bool) -> Application:
    """With a second sink or without."""
    web = ApplicationSource(
        name="web",
        rule=rule,
        hosts=HostList(registry=Registry(LEASE_MS), grace_ms=GRACE_MS),
        unit_lease_ms=UNIT_LEASE_MS,
    )
    app = ApplicationSource(name="app", rule=Rule(partitions=Partitions()), unit_lease_ms=UNIT_LEASE_MS)
    sinks = ("store", "alerts") if alerts else ("store",)
    return Application(
        name="logs",
        sources=(web, app),
        operators=(Operator("sessions", UNIT_LEASE_MS),),
        sinks=tuple(Sink(name, UNIT_LEASE_MS) for name in sinks),
        edges=(("web", "sessions"), ("app", "sessions"), *(("sessions", name) for name in sinks)),
    )


RULES = (  # with one host late of four, with none, and with a fifth of a minute's events missing
    Rule(host_precise=HostPrecise(250_000)),
    Rule(host_precise=HostPrecise(0)),
    Rule(deficit=Deficit(200_000, 60_000)),
)
DEFINITIONS = tuple(definition(rule, alerts=alerts) for rule in RULES for alerts in (False, True))


class Client:
    """What a client believes that the server knows of it: right, unless answers were lost."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sequence = self.epoch = 0
        self.begins = True
        self.names: dict[str, list[str]] = {}


class World:
    """A store holds one at a time."""

    def __init__(self, seed: int, store: MortalStore) -> None:
        self.random = random.Random(seed)
        self.clock = ManualClock(START_MS)
        self.store = store
        self.records = ApplicationRecords(store)
        self.definition = self.random.choice(DEFINITIONS)
        self.clients = [Client("c0"), Client("c1")]
        self.sent: list[ReportBatch] = []
        self.former: list[RunningApplication] = []
        self.records.create(self.definition)
        self.published: dict[str, tuple[int | None, int | None]] = {}
        self.global_ms: int | None = None
        self.lead(Kept())
        self.change_hosts(HostsChange(level="web", action="register", hosts=HOSTS[:3]))
        if self.random.random() < 0.7:
            self.begin_well()

    def begin_well(self) -> None:
        """Everybody was read up to some instant, and counted over a while before it."""
        hosts = [self.clock.now_ms() - self.random.randint(0, 40_000) for _ in HOSTS[:3]]
        before = [instant_ms - 90_000 for instant_ms in hosts]
        counts = [self.random.choice((30, 100, 500)) for _ in hosts]
        first = SourceReport("web", 0, 0, HOSTS[:3], **columns([0, 1, 2], before, counts))
        then = SourceReport("web", 0, 0, hosts_from=3, **columns([0, 1, 2], hosts, counts))
        app = SourceReport("app", 0, 0, progress={"any": self.clock.now_ms()})
        self.post(ReportBatch("c2", 0, self.leader.epoch, True, (first, then, app)))

    def lead(self, kept: Kept) -> None:
        """A new leader, a new epoch; the model begins with what it knows to be kept."""
        self.leader = RunningApplication(self.definition, self.records, self.clock)
        self.model = SlowServer(self.definition, kept, self.leader.epoch, self.clock.now_ms())

    def both(self, server: Callable[[], object], model: Callable[[], object]) -> None:
        """Both do it and say the same; or the leader dies at one of its commits, and the next one begins with
        what was persisted: of each part what was before or what is after."""
        store, before = self.store, None
        if self.random.random() < 0.15:
            before = self.model.kept()
            store.die(self.random.randrange(2), self.random.choice(("before", "after")))
        expected = model()
        try:
            assert server() == expected
        except Killed:
            assert before is not None
            store.live_on()
            found, after = self.persisted(), self.model.kept()
            for name in Kept.__slots__:
                assert getattr(found, name) in (getattr(before, name), getattr(after, name)), name
            self.lead(found)
        store.live_on()

    def persisted(self) -> Kept:
        state = self.records.state("logs")
        assert state is not None
        hosts = {source.name: self.records.hosts("logs", source.name) for source in self.definition.sources}
        approvals = self.records.approvals("logs")
        return Kept(
            levels={name: (one.input_ms, one.output_ms) for name, one in state.levels.items()},
            global_ms=state.global_ms,
            generations={
                source.name: state.generations.get(source.name, {}) for source in self.definition.sources
            },
            units={(one.level, one.processor, one.key_group): one.generation for one in state.units},
            hosts={name: set(one.names) for name, one in hosts.items()},
            leaving={
                name: {(one.names[host.host], host.end_ms, host.until_ms) for host in one.leaving}
                for name, one in hosts.items()
            },
            approved_until_ms=max((one.until_ms for one in approvals), default=None),
        )

    def check(self) -> None:
        leader, model, kept = self.leader, self.model, self.model.kept()
        marks = leader.published.marks
        levels = {name: (one.input_ms, one.output_ms) for name, one in marks.levels.items()}
        assert (levels, marks.global_ms) == (model.levels, model.global_ms)
        for name, before in self.published.items():
            assert all(map(not_smaller, levels[name], before)), "a regression"
        assert not_smaller(marks.global_ms, self.global_ms), "a regression"
        self.published, self.global_ms = levels, marks.global_ms
        assert leader.approved_until_ms() == model.approved_until_ms
        units = leader.units.known()
        assert {(one.level, one.processor, one.key_group): one.generation for one in units} == kept.units
        for name, source in leader.sources.items():
            hosts = source.listed_hosts()
            assert set(hosts.names) == kept.hosts[name]
            leaving = {(hosts.names[one.host], one.end_ms, one.until_ms) for one in hosts.leaving}
            assert leaving == kept.leaving[name]
            assert source.awaited == model.sources[name].awaited
            assert source.generations() == model.sources[name].generations
            if source.source.rule.deficit is not None:
                decision = source.decision
                stated = decision.expected_missing_ppm, decision.bound_ppm
                assert stated == model.sources[name].stated_ppm, "the bound that is stated"

    # -- steps ------------------------------------------------------------------------------------------

    def report(self) -> None:
        client = self.random.choice(self.clients)
        self.send(client)
        if client.begins and self.random.random() < 0.8:
            self.send(client)  # as it was asked to

    def send(self, client: Client) -> None:
        client.sequence += 1
        epoch = client.epoch if self.random.random() < 0.95 else client.epoch - 1
        if client.begins:
            client.names = {}
        sources = tuple(self.source_report(client) for _ in range(self.random.randint(0, 3)))
        units = tuple(self.unit_report() for _ in range(self.random.choice((0, 0, 1, 2))))
        batch = ReportBatch(client.name, client.sequence, epoch, client.begins, sources, units)
        self.sent.append(batch)
        self.post(batch, client)

    def source_report(self, client: Client) -> SourceReport:
        choice = self.random
        level, partition = choice.choice(("web", "web", "app")), choice.randrange(PARTITIONS)
        known = self.model.sources[level].generations.get(partition, 0)
        generation = max(known + choice.choice((0, 0, 0, 0, 0, 0, 0, 1, -1)), 0)
        if choice.random() < 0.03:
            partition = -1  # which there is not
        of = PARTITIONS if choice.random() < 0.1 else 0
        hosts = choice.choices(HOSTS, k=choice.randint(0, 4))
        instants = [self.instant() for _ in hosts]
        if choice.random() < 0.4:
            told = dict(zip(hosts, instants, strict=True))
            return SourceReport(level, partition, generation, partitions=of, progress=told)
        names = client.names.setdefault(level, [])
        fresh = tuple(dict.fromkeys(host for host in hosts if host not in names))
        begin = len(names)
        names += fresh
        counts = [choice.randrange(60) for _ in hosts] if choice.random() < 0.8 else None
        told_of = columns([names.index(host) for host in hosts], instants, counts)
        return SourceReport(level, partition, generation, fresh, begin, partitions=of, **told_of)

    def instant(self) -> int:
        if self.random.random() < 0.03:
            return self.random.choice((-1, self.clock.now_ms() + 60_001, 2**62))
        return self.clock.now_ms() - self.random.randint(0, 40_000)

    def unit_report(self) -> UnitReport:
        level, group = self.random.choice(("sessions", "store", "web")), self.random.randrange(2)
        oldest = self.random.choice((None, self.clock.now_ms() - self.random.randint(0, 60_000), -1))
        known = self.model.owners.get((level, "p", group), 0)
        generation = max(known + self.random.choice((0, 0, 0, 1, -1)), 0)
        return UnitReport(level, "p", group, oldest, self.random.random() < 0.2, generation)

    def post(self, batch: ReportBatch, client: Client | None = None) -> None:
        def served() -> tuple[bool, int]:
            answer = self.leader.report(batch)
            if client is not None and self.random.random() < 0.9:
                client.begins, client.epoch = answer.resend, answer.epoch
            return answer.resend, len(answer.refused)

        self.both(served, lambda: self.model.report(batch, self.clock.now_ms()))

    def repeat(self) -> None:
        """Something old, in whatever order, to who leads now."""
        if self.sent:
            self.post(self.random.choice(self.sent))

    def tick(self) -> None:
        self.both(self.leader.tick, lambda: self.model.tick(self.clock.now_ms()))

    def advance(self) -> None:
        self.clock.advance_ms(self.random.choice((500, 5_000, 20_000, 31_000)))

    def set_clock(self) -> None:
        """A time server sets it, or the machine has slept: nobody was silent meanwhile."""
        step_ms = self.random.choice((-3_600_000, -20_000, 20_000, 31_000, 3_600_000, 86_400_000))
        self.clock.set_by_ms(step_ms)

        def expected() -> None:
            self.model.shift(step_ms)
            self.model.tick(self.clock.now_ms())

        self.both(self.leader.tick, expected)

    def hosts(self) -> None:
        action = self.random.choice(("register", "register", "renew", "drain", "drain", "remove"))
        hosts = tuple(self.random.choices(HOSTS, k=self.random.randint(1, 2)))  # the same twice, now and then
        end_ms = self.instant() if action == "drain" and self.random.random() < 0.7 else None
        if end_ms is not None and not 0 <= end_ms < 2**42:
            end_ms = None
        self.change_hosts(HostsChange(level="web", action=action, hosts=hosts, end_ms=end_ms))

    def leave_and_return(self) -> None:
        """Hosts leave and are back before anybody reports: what was told of them has to be told again."""
        hosts = tuple(self.random.sample(HOSTS, self.random.randint(1, 2)))
        self.change_hosts(HostsChange(level="web", action="remove", hosts=hosts))
        self.change_hosts(HostsChange(level="web", action="register", hosts=hosts))

    def change_hosts(self, change: HostsChange) -> None:
        def served() -> bool:
            try:
                self.leader.change_hosts(change)
            except NotFound:
                return False
            return True

        self.both(served, lambda: self.model.change_hosts(change, self.clock.now_ms()))

    def approve(self) -> None:
        until_ms = self.clock.now_ms() - self.random.randint(0, 10_000)

        request = ApprovalRequest(until_ms=until_ms, by="ann", reason="late")
        self.both(lambda: self.leader.approve(request), lambda: self.model.approve(until_ms))

    def lose_session(self) -> None:
        self.former.append(self.leader)
        self.lead(self.model.kept())

    def former_goes_on(self) -> None:
        """Who led before persists nothing and publishes nothing."""
        if not self.former:
            return
        former = self.random.choice(self.former)
        before, published = self.persisted(), former.published.marks
        changes = [HostsChange(level="web", action=how, hosts=HOSTS[:2]) for how in ("register", "drain")]
        request = ApprovalRequest(until_ms=self.clock.now_ms(), by="bob", reason="hurry")
        acts: list[Callable[[], object]] = [former.tick, lambda: former.approve(request)]
        acts += [partial(former.report, batch) for batch in self.sent[-1:]]
        acts += [partial(former.change_hosts, change) for change in changes]
        for act in self.random.sample(acts, 2):
            with contextlib.suppress(NotLeader, NotFound):
                act()
        assert former.published.marks.levels == published.levels
        assert self.persisted() == before

    def redefine(self) -> None:
        self.definition = self.random.choice(DEFINITIONS)
        kept = self.model.kept()
        if self.definition == self.leader.application:
            return
        self.records.change(self.definition)
        names = {level.name for level in self.definition.levels}
        kept.levels = {name: marks for name, marks in kept.levels.items() if name in names}
        kept.units = {unit: owner for unit, owner in kept.units.items() if unit[0] in names}
        self.published = {name: marks for name, marks in self.published.items() if name in names}
        self.former.append(self.leader)
        self.lead(kept)


def columns(index: list[int], instants: list[int], counts: list[int] | None) -> dict[str, bytes]:
    return {
        "index": np.array(index, "<i4").tobytes(),
        "latest_ms": np.array(instants, "<i8").tobytes(),
        "events": b"" if counts is None else np.array(counts, "<i8").tobytes(),
    }


def not_smaller(now_ms: int | None, before_ms: int | None) -> bool:
    return before_ms is None or (now_ms is not None and now_ms >= before_ms)


STEPS_OF = {
    World.report: 40,
    World.tick: 20,
    World.advance: 10,
    World.hosts: 8,
    World.leave_and_return: 3,
    World.repeat: 6,
    World.set_clock: 3,
    World.lose_session: 3,
    World.former_goes_on: 3,
    World.approve: 2,
    World.redefine: 2,
}


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_server_does_what_a_slow_model_does(seed: int) -> None:
    store = MortalStore(MemoryEnsemble())
    for number in range(RUNS // SEEDS):
        run = seed * RUNS // SEEDS + number
        world = World(run, store)
        done: list[str] = []
        try:
            world.check()
            for step in world.random.choices([*STEPS_OF], weights=[*STEPS_OF.values()], k=STEPS):
                done.append(step.__name__)
                step(world)
                if step is not World.advance:  # after which the same is published, awaited and kept
                    world.check()
        except BaseException as error:
            error.add_note(f"run {run}, after {', '.join(done)}")
            raise
        world.records.drop("logs")
    store.close()
