"""A coordinator of a release without owners beside one that knows them, as during a rolling upgrade.

The older one runs every application while it leads, and none while it stands by; its state records name no
owner. Where both run an application, their epochs end each other and no watermark falls. What the hash gives
to an older one that stands by is refused, by the name of who should run it, until that one is gone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
import pytest
from rtolap.base.errors import NotOwner
from rtolap.coordinator.applications.owned import chosen_owner
from rtolap.coordinator.applications.registry import Applications
from rtolap.coordinator.leadership import FencedStore
from rtolap.coordinator.other_owners import OtherOwners
from rtolap.metadata import paths
from rtolap.metadata.applications import ApplicationRecords
from rtolap.metadata.records import ApplicationState, Owner
from rtolap.metadata.updates import update
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.watermark.messages import HostsChange

from tests.support.seeds import so_many
from tests.support.twins.clock import ManualClock
from tests.support.twins.metadata import MemoryEnsemble
from tests.support.watermarks.owners_world import START_MS, Node, Reader, application

STEPS = 150


class OldRecords(ApplicationRecords):
    """Records as the older release writes them: it keeps no field that it does not know."""

    def begin(self, name: str, now_ms: int, owner: Owner | None = None) -> ApplicationState:
        def without_owner(state: ApplicationState | None) -> ApplicationState | None:
            return None if state is None else msgspec.structs.replace(state, owner=None)

        update(self.store, paths.application_state(name), ApplicationState, without_owner)
        return super().begin(name, now_ms, None)


class OldNode(Node):
    """A coordinator that shares no applications: it has all of them, and knows no owner."""

    def __init__(self, ensemble: MemoryEnsemble, clock: ManualClock, number: int) -> None:
        super().__init__(ensemble, clock, number)
        owned = FencedStore(self.store, self.election.node)
        self.applications = Applications(owned, clock, self.election.node, looked_at=self.cached)
        self.applications.own._records = OldRecords(owned)


class Mixed:
    """An older coordinator and a newer one, and an application that the hash gives to one of them."""

    def __init__(self, *, chosen: str) -> None:
        self.clock, self.ensemble = ManualClock(START_MS), MemoryEnsemble()
        self.old, self.new = OldNode(self.ensemble, self.clock, 1), Node(self.ensemble, self.clock, 2)
        urls = {"old": self.old.url, "new": self.new.url}
        names = (f"a{number}" for number in range(100))
        self.name = next(name for name in names if chosen_owner(name, urls.values()) == urls[chosen])
        self.settle()
        self.old.applications.create(msgspec.to_builtins(application(self.name)))
        # of both partitions of the topic that the hosts write to
        self.readers = [Reader(self.name, number, {f"h{number}": START_MS}) for number in range(2)]
        for reader in self.readers:
            reader.report()
        self.settle()

    def settle(self) -> None:
        assert self.ensemble.settle()

    def register(self, node: Node) -> None:
        hosts = tuple(host for reader in self.readers for host in reader.read)
        change = HostsChange(level="web", action="register", hosts=hosts)
        node.applications.running(self.name).change_hosts(change)

    def send(self, node: Node) -> None:
        for reader in self.readers:
            reader.answered(node.applications.running(self.name).report(reader.batch()))

    def read_on(self, by_ms: int) -> None:
        for reader in self.readers:
            reader.read = {host: read_ms + by_ms for host, read_ms in reader.read.items()}
            reader.report()

    def state(self) -> ApplicationState:
        state = ApplicationRecords(self.new.store).state(self.name)
        assert state is not None
        return state

    def problem(self) -> str | None:
        def open_client(url: str) -> CoordinatorClient:
            raise AssertionError("nothing is requested of another one")

        return OtherOwners(self.new.applications, open_client).problem(self.name)

    def close(self) -> None:
        for node in (self.old, self.new):
            node.end()


@pytest.fixture
def to_old() -> Iterator[Mixed]:
    made = Mixed(chosen="old")
    yield made
    made.close()


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(6, 20)))
def test_where_both_run_an_application_their_epochs_end_each_other_and_no_watermark_falls(seed: int) -> None:
    mixed, rng = Mixed(chosen="new"), random.Random(seed)
    published = 0
    epochs: set[int] = set()
    owners: set[str | None] = set()
    try:
        node: Node = mixed.old
        mixed.register(node)
        for _ in range(STEPS):
            if rng.random() < 0.1:  # clients stay with one for a while
                node = rng.choice((mixed.old, mixed.new))
            try:
                match rng.choice(("send", "send", "tick", "tick", "read", "advance")):
                    case "send":
                        mixed.send(node)
                    case "tick":
                        node.applications.tick()
                    case "read":
                        mixed.read_on(rng.randrange(500))
                    case "advance":
                        mixed.clock.advance_ms(rng.choice((100, 700, 1_600)))
            except NotOwner:  # of an epoch that the other one has ended
                node.applications.own.forget(mixed.name)
            mixed.settle()
            state = mixed.state()
            assert (state.global_ms or 0) >= published, "it fell"
            published = state.global_ms or 0
            epochs.add(state.epoch)
            owners.add(None if state.owner is None else state.owner.url)
        assert len(epochs) > 1, "runs in which no epoch ends prove little"
        assert owners == {None, mixed.new.url}
        assert published > START_MS
    finally:
        mixed.close()


def test_an_older_one_that_stands_by_and_is_chosen_is_named_until_it_is_gone(to_old: Mixed) -> None:
    with pytest.raises(NotOwner, match=to_old.old.url) as refused:
        to_old.new.applications.running(to_old.name)
    assert refused.value.leader_url == to_old.old.url
    to_old.new.applications.tick()
    words = to_old.problem()
    assert words is not None
    assert f"application {to_old.name} is run by no coordinator" in words
    to_old.old.end()
    to_old.settle()
    to_old.register(to_old.new)
    to_old.new.applications.tick()
    state = to_old.state()
    assert state.owner is not None
    assert state.owner.url == to_old.new.url
    assert to_old.problem() is None
    to_old.old = OldNode(to_old.ensemble, to_old.clock, 3)
