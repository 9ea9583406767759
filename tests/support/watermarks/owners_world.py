"""Several coordinators that share several applications, in one process, and the events that may befall them.

Coordinators come, end, die and freeze; some learn late who lives, and one that wakes acts on what it knew.
Reports arrive at any of them, repeated and in any order. Each application is held against the slow model of a
server (`application_model`), which is given what an owner has accepted, epoch by epoch.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
import numpy as np
import pytest
from rtolap.base.errors import NotFound, NotLeader, RtolapError
from rtolap.coordinator.applications.owned import LiveCoordinators, chosen_owner
from rtolap.coordinator.applications.registry import Applications
from rtolap.coordinator.applications.running import RunningApplication
from rtolap.coordinator.leadership import FencedStore
from rtolap.metadata import paths
from rtolap.metadata.applications import ApplicationRecords
from rtolap.metadata.cached import CachedStore
from rtolap.metadata.store import Operation
from rtolap.model.application import (
    Application,
    ApplicationSource,
    HostList,
    HostPrecise,
    Registry,
    Rule,
    Sink,
)
from rtolap.protocols.watermark.messages import HostsChange, ReportAnswer, ReportBatch
from rtolap.watermark_client.pending import Pending

from tests.support.twins.clock import ManualClock
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore
from tests.support.watermarks.application_model import Kept, SlowServer

START_MS = 1_000_000_000_000
DAY_MS = 86_400_000
SESSION_MS = 2_000
AHEAD_MAX_MS = 50_000  # of the clock: what is further is refused
NAMES = ("ads", "clicks", "logs", "orders")
COORDINATORS_MAX = 4
PASSING = (NotLeader, NotFound)  # another one is to be asked, or it is asked again


def application(name: str) -> Application:
    web = ApplicationSource(
        name="web", rule=Rule(host_precise=HostPrecise(0)), hosts=HostList(registry=Registry(DAY_MS))
    )
    return Application(name=name, sources=(web,), sinks=(Sink("store"),), edges=(("web", "store"),))


class DeafStore(MemoryStore):
    """A session whose process may hear nothing for a while, and may lose it without noticing."""

    deaf = False

    def touched(self, paths: Sequence[str]) -> None:
        if not self.deaf:
            super().touched(paths)

    def end_unnoticed(self) -> None:
        """End the session in the ensemble; reads still come through, as at a server that lags."""
        self.deaf = True
        self.ensemble.remove_owned(self._owner())

    def hear(self) -> None:
        self.deaf = False
        self._wake_all()


class Node:
    """A coordinator: its session, and the applications that it runs."""

    def __init__(self, ensemble: MemoryEnsemble, clock: ManualClock, number: int) -> None:
        self.url = f"http://c{number}"
        self.store = DeafStore(ensemble)
        self.election = self.store.elect(paths.ELECTION, self.url, lambda: None)
        owned = FencedStore(self.store, self.election.node)
        self.cached = CachedStore(owned)
        self.applications = Applications(
            owned,
            clock,
            self.election.node,
            live=LiveCoordinators(self.cached, self.url),
            looked_at=self.cached,
        )
        self.frozen = self.expired = False

    def end(self) -> None:
        self.store.ensemble.fault = None  # a withdrawal that fails is a kill
        self.applications.close()
        self.cached.close()
        self.store.close()


@dataclass
class Reader:
    """A client by hand. `read`: host → latest, all of one partition."""

    application: str
    number: int
    read: dict[str, int]
    pending: Pending = field(default_factory=Pending)
    sequence: int = 0
    epoch: int = 0
    begins: bool = True
    unsent: ReportBatch | None = None
    believed: str | None = None

    @property
    def name(self) -> str:
        return f"{self.application}-{self.number}"

    def report(self) -> None:
        hosts = sorted(self.read)
        instants = np.array([self.read[host] for host in hosts])
        self.pending.progress("web", self.number, 0, hosts, instants, np.ones(len(hosts), np.int64), 2)

    def batch(self) -> ReportBatch:
        if self.unsent is None:
            self.sequence += 1
            if self.begins:
                self.pending.begin()
            self.unsent = self.pending.take_report(self.name, self.sequence, self.epoch, self.begins)
        return self.unsent

    def answered(self, answer: ReportAnswer) -> None:
        assert all("not in the host list" in one.why for one in answer.refused), answer.refused
        self.unsent = None
        self.begins, self.epoch = answer.resend, answer.epoch


class Model:
    """The slow model of one application, over its epochs."""

    def __init__(self, definition: Application, former_epoch: int = -1) -> None:
        """`former_epoch`: the last one of an application of that name that was dropped."""
        self._definition = definition
        self.epoch = former_epoch
        self.server = SlowServer(definition, Kept(), -1, START_MS)

    def current(self, running: RunningApplication, now_ms: int) -> SlowServer | None:
        """Return None for an epoch that is over."""
        if running.epoch > self.epoch:
            self.server = SlowServer(self._definition, self.server.kept(), running.epoch, now_ms)
            self.epoch = running.epoch
        return self.server if running.epoch == self.epoch else None


class OwnersWorld:
    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.clock = ManualClock(START_MS)
        self.ensemble = MemoryEnsemble()
        self.nodes: list[Node] = []
        self.numbers = 0
        self.models = {name: Model(application(name)) for name in NAMES}
        self.seen_ms = dict.fromkeys(NAMES, 0)
        self.said: list[tuple[str, ReportBatch]] = []
        self._listen(monkeypatch)
        for _ in range(self.random.randint(1, 3)):
            self.join()
        for name in NAMES:
            self.nodes[0].applications.create(msgspec.to_builtins(application(name)))
        self.readers = [
            Reader(name, number, {f"h{number}-{host}": START_MS for host in range(2)})
            for name in NAMES
            for number in range(2)
        ]
        self.settle()
        for name in NAMES:
            self.at_owner(name, partial(self.register_all, name=name))

    def _listen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have the model do whatever an owner has done."""
        report, tick = RunningApplication.report, RunningApplication.tick
        change = RunningApplication.change_hosts
        world = self

        def reported(running: RunningApplication, batch: ReportBatch) -> ReportAnswer:
            answer = report(running, batch)
            model = world.model_of(running)
            if model is not None:
                expected = model.report(batch, world.clock.now_ms())
                assert (answer.resend, len(answer.refused)) == expected
            return answer

        def ticked(running: RunningApplication) -> None:
            tick(running)
            model = world.model_of(running)
            if model is not None:
                model.tick(world.clock.now_ms())

        def changed(running: RunningApplication, wanted: HostsChange) -> object:
            answer = change(running, wanted)
            model = world.model_of(running)
            assert model is not None, "an epoch that is over keeps no hosts"
            assert model.change_hosts(wanted, world.clock.now_ms())
            return answer

        monkeypatch.setattr(RunningApplication, "report", reported)
        monkeypatch.setattr(RunningApplication, "tick", ticked)
        monkeypatch.setattr(RunningApplication, "change_hosts", changed)

    def model_of(self, running: RunningApplication) -> SlowServer | None:
        return self.models[running.application.name].current(running, self.clock.now_ms())

    # -- who is there -------------------------------------------------------------------------------------

    def awake(self) -> list[Node]:
        return [node for node in self.nodes if not node.frozen]

    def settle(self) -> None:
        assert self.ensemble.settle()

    def join(self) -> None:
        if len(self.nodes) < COORDINATORS_MAX:
            self.numbers += 1
            number = self.numbers if self.random.random() < 0.7 else self.random.randint(1, self.numbers)
            if f"http://c{number}" not in {node.url for node in self.nodes}:
                self.nodes.append(Node(self.ensemble, self.clock, number))
                self.settle()
                self.counts["joined"] += 1

    def leave(self) -> None:
        """Withdraw a coordinator, as at SIGTERM."""
        if len(self.awake()) > 1:
            node = self.random.choice(self.awake())
            self.nodes.remove(node)
            node.end()
            self.counts["left"] += 1

    def kill(self) -> None:
        """Kill a coordinator. Its session outlives it for a while, which others have to wait for."""
        if len(self.awake()) > 1:
            node = self.random.choice(self.awake())
            node.frozen = node.store.deaf = True
            self.counts["killed"] += 1

    def freeze(self) -> None:
        if len(self.awake()) > 1:
            node = self.random.choice(self.awake())
            node.frozen = node.store.deaf = True
            self.counts["frozen"] += 1

    def expire(self) -> None:
        """End a session of which nothing was heard for long enough, and no sooner."""
        silent = [node for node in self.nodes if node.frozen and not node.expired]
        if silent:
            self.clock.advance_ms(SESSION_MS)
            node = self.random.choice(silent)
            node.expired = True
            node.store.end_unnoticed()
            self.counts["expired"] += 1

    def thaw(self) -> None:
        """Let a coordinator go on where it was. It knows of nothing that has happened since."""
        frozen = [node for node in self.nodes if node.frozen]
        if frozen:
            node = self.random.choice(frozen)
            node.frozen = False
            for _ in range(self.random.randint(0, 4)):
                self.attempt(self.random.choice((lambda: node.applications.tick(), lambda: self.ask(node))))
            if self.random.random() < 0.2 and node.expired:
                self.nodes.remove(node)  # it ends instead
                node.end()
                return
            self.notice(node)
            self.counts["thawed"] += 1

    def notice(self, node: Node) -> None:
        node.store.deaf = False
        if node.expired:
            node.expired = False
            node.store.expire()
        else:
            node.store.hear()
        self.settle()

    def lag(self) -> None:
        """Have somebody learn late who lives; its session goes on."""
        node = self.random.choice(self.awake())
        node.store.deaf = not node.store.deaf
        if not node.store.deaf:
            node.store.hear()
            self.settle()
        self.counts["lagged"] += 1

    # -- what they do -------------------------------------------------------------------------------------

    def attempt(self, action: Callable[[], object]) -> bool:
        try:
            action()
        except PASSING as error:
            self.counts[type(error).__name__] += 1
            return False
        return True

    def tick(self) -> None:
        node = self.random.choice(self.awake())
        self.attempt(node.applications.tick)

    def advance(self) -> None:
        self.clock.advance_ms(self.random.choice((100, 700, 1_600)))

    def read(self) -> None:
        reader = self.random.choice(self.readers)
        for host in self.random.sample(sorted(reader.read), self.random.randint(1, 2)):
            ahead_ms = self.clock.now_ms() + AHEAD_MAX_MS
            reader.read[host] = min(reader.read[host] + self.random.randint(0, 5_000), ahead_ms)
        reader.report()

    def send(self) -> None:
        """Send a batch to whom its reader believes in, or to anybody; answers may get lost."""
        reader = self.random.choice(self.readers)
        batch = reader.batch()
        self.said.append((reader.application, batch))
        nodes = {node.url: node for node in self.awake()}
        node = nodes.get(reader.believed or "") or self.random.choice(list(nodes.values()))
        try:
            answer = node.applications.running(reader.application).report(batch)
        except NotLeader as error:
            self.counts[type(error).__name__] += 1
            reader.believed = error.leader_url
            return
        reader.believed = node.url
        if self.random.random() < 0.85:
            reader.answered(answer)

    def repeat(self) -> None:
        if self.said:
            name, batch = self.random.choice(self.said[-60:])
            node = self.random.choice(self.awake())
            self.attempt(lambda: node.applications.running(name).report(batch))

    def grow(self) -> None:
        name, node = self.random.choice(NAMES), self.random.choice(self.awake())
        host = f"extra-{self.random.randrange(1_000_000)}"
        reader = next(one for one in self.readers if one.application == name)
        if self.attempt(lambda: self.register(node, name, [host])):
            reader.read[host] = self.clock.now_ms() - self.random.randint(0, 5_000)
            reader.report()

    def recreate(self) -> None:
        """Drop an application at its owner, and create it again: the one before answers no more."""
        name, node = self.random.choice(NAMES), self.random.choice(self.awake())
        self.clock.advance_ms(1)
        if self.attempt(lambda: node.applications.drop(name)):
            node.applications.create(msgspec.to_builtins(application(name)))
            self.models[name] = Model(application(name), self.models[name].epoch)
            self.seen_ms[name] = 0
            self.settle()
            self.attempt(lambda: self.register_all(node, name))
            self.counts["recreated"] += 1

    def register_all(self, node: Node, name: str) -> None:
        hosts = sorted(host for one in self.readers if one.application == name for host in one.read)
        self.register(node, name, hosts)

    def register(self, node: Node, name: str, hosts: Sequence[str]) -> None:
        change = HostsChange(level="web", action="register", hosts=tuple(hosts))
        node.applications.running(name).change_hosts(change)

    def ask(self, node: Node | None = None) -> None:
        """Check that an answer is what the model says, and no smaller than any answer before."""
        asked = self.random.choice(self.awake()) if node is None else node
        for name in NAMES:
            try:
                answer = asked.applications.watermarks(name)
            except NotLeader:
                continue
            model = self.models[name]
            assert model.epoch <= answer.epoch, f"{asked.url} answers for {name} in an epoch that is over"
            assert answer.global_ms == model.server.global_ms, name
            assert (answer.global_ms or 0) >= self.seen_ms[name], f"{name} stepped back"
            self.seen_ms[name] = answer.global_ms or 0
            self.counts["answers"] += 1

    def check(self) -> None:
        """Check that the model has published what is persisted."""
        records = ApplicationRecords(self.reader_store())
        for name, model in self.models.items():
            state = records.state(name)
            assert state is not None
            assert state.global_ms == model.server.global_ms, name

    def reader_store(self) -> MemoryStore:
        return next(node.store for node in self.nodes)

    def break_commits(self) -> None:
        """Break the connection at some of the next commits, before or after they are applied."""
        left = [self.random.choice(("before", "after", None, None)) for _ in range(4)]

        def fault(operations: Sequence[Operation]) -> object:
            return left.pop() if left else None

        self.ensemble.fault = fault  # type: ignore[assignment]

    # -- the end ------------------------------------------------------------------------------------------

    def at_owner(self, name: str, action: Callable[[Node], object]) -> None:
        for node in self.awake():
            if self.attempt(partial(action, node)):
                return
        raise AssertionError(f"nobody owns {name}")

    def finish(self) -> None:
        """Let everything be noticed, read and reported. Each application is run by whom the rule says, and is
        where its hosts were read to."""
        self.ensemble.fault = None
        for node in list(self.nodes):
            if node.frozen or node.store.deaf:
                node.frozen = False
                self.notice(node)
        for _ in range(3):
            for node in self.nodes:
                assert self.attempt(node.applications.tick)
            self.settle()
        urls = [node.url for node in self.nodes]
        for name in NAMES:
            owners = [node.url for node in self.nodes if node.applications.own.known(name)]
            assert owners == [chosen_owner(name, urls)]
        for name in NAMES:
            self.at_owner(name, partial(self.register_all, name=name))
        end_ms = max(max(one.read.values()) for one in self.readers) + 1
        for reader in self.readers:
            reader.read = dict.fromkeys(reader.read, end_ms)
            reader.report()
        for _ in range(4):
            for reader in self.readers:
                self.at_owner(reader.application, partial(self._flush, reader=reader))
        for node in self.nodes:
            node.applications.tick()
            self.ask(node)
        assert self.seen_ms == dict.fromkeys(NAMES, end_ms)

    def _flush(self, node: Node, reader: Reader) -> None:
        reader.answered(node.applications.running(reader.application).report(reader.batch()))

    def close(self) -> None:
        self.ensemble.fault = None
        for node in self.nodes:
            try:
                node.end()
            except RtolapError as error:
                self.counts[type(error).__name__] += 1
