"""What commands request is done by the process that leads, and their nodes go."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rtolap.base.errors import NotLeader, Unavailable
from rtolap.metadata.store import Create
from rtolap.sep.delivery.poison import PoisonPolicy
from rtolap.sep.delivery.requests import Request, RequestNodes, is_done, post
from rtolap.sep.delivery.serving import DeliveryThread
from rtolap.sep.subscriptions.records import SubscriptionPaths

from tests.sep.delivery.test_delivery import run
from tests.sep.delivery.test_rows_apart import FIRST, World, set_apart
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore
from tests.support.waiting import until

FOLDER = SubscriptionPaths("orders").requests


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(MemoryEnsemble())


def at_once(act: Callable[[], None]) -> None:
    act()


def test_a_replay_is_done_and_its_node_goes(store: MemoryStore) -> None:
    world = World()
    set_apart(world)
    world.bad = set()
    path = post(store, FOLDER, Request("replay"))
    assert not is_done(store, path)
    RequestNodes(store, FOLDER).take(at_once, world.process)
    assert is_done(store, path)
    assert world.values() == ["a/1/x", "a/3/y", "a/2/x", "a/4/x"]


def test_skipped_letters_are_replayed_by_their_own_request(store: MemoryStore) -> None:
    world = World(PoisonPolicy("skip", 1))
    world.bad = {2}
    run(world.process, FIRST)
    world.bad = set()
    nodes = RequestNodes(store, FOLDER)
    post(store, FOLDER, Request("replay"))
    nodes.take(at_once, world.process)
    assert len(world.values()) == 3
    post(store, FOLDER, Request("replay_skipped"))
    nodes.take(at_once, world.process)
    assert world.values()[3:] == ["a/2/x"]


def test_what_can_never_be_done_is_taken_away(store: MemoryStore) -> None:
    """Only a mirror reads rows again; a later version may request what this one does not know."""
    paths = [post(store, FOLDER, Request("read", "t", (b"x",))), f"{FOLDER}/unknown"]
    store.commit([Create(paths[1], b'{"kind":"dance"}')])
    RequestNodes(store, FOLDER).take(at_once, World().process)
    assert all(is_done(store, path) for path in paths)


def test_what_cannot_be_done_now_is_done_later(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    path, nodes = post(store, FOLDER, Request("replay")), RequestNodes(store, FOLDER)

    def away(**_: object) -> None:
        raise Unavailable("the broker is away")

    with monkeypatch.context() as patched:
        patched.setattr(world.process, "replay", away)
        nodes.take(at_once, world.process)
    assert not is_done(store, path)
    nodes.take(at_once, world.process)
    assert is_done(store, path)


def test_requests_and_due_replays_are_done_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    set_apart(world)
    world.bad = set()
    world.process.replay_due_s = 0.0
    monkeypatch.setattr("rtolap.sep.delivery.serving._IDLE_LOOK_S", 0.01)
    thread = DeliveryThread(world.process, world.clock)
    thread.start()
    try:
        until(lambda: not world.process.apart, "the row is back")
        done: list[str] = []

        def fails() -> None:
            done.append("failed")
            raise Unavailable("not now")

        thread.request(fails)
        thread.request(lambda: done.append("done"))
        until(lambda: done == ["failed", "done"], "both")
    finally:
        thread.close()
    assert world.values()[2:] == ["a/2/x", "a/4/x"]


def test_a_request_of_a_process_that_was_shut_out_ends_its_delivery() -> None:
    ended: list[Exception | None] = []
    thread = DeliveryThread(World().process, World().clock, ended=ended.append)
    thread.start()

    def shut_out() -> None:
        raise NotLeader("another process delivers")

    thread.request(shut_out)
    until(lambda: ended, "the end")
    thread.close()
    assert isinstance(ended[0], NotLeader)
