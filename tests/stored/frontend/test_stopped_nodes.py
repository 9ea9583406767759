"""A storage node that stands still is noticed by a ping and left behind; what reaches it late is harmless."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.base.errors import Unavailable
from rtolap.stored.frontend.storage_nodes import StorageNodes
from rtolap.stored.metastore import partitions
from rtolap.stored.metastore.records import TransactionState

from tests.support.stored.replicated_table import ReplicatedTable
from tests.support.waiting import until

WAITED_S_MAX = 10.0  # about one second on an idle machine; who does not notice waits for 20 s, or for ever


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ReplicatedTable]:
    with ReplicatedTable(tmp_path) as made:
        yield made


def goes_on(world: ReplicatedTable, name: str) -> None:
    """It does, and the endpoints know."""
    world.stoppable.go_on(name)
    until(lambda: asked(world.known, name))


def asked(known: StorageNodes, name: str) -> bool:
    try:
        known.client(name)
    except Unavailable:
        return False
    return True


def caught_up(world: ReplicatedTable) -> bool:
    """All replicas; a copy that takes long is asked for again."""
    world.publisher.catch_up()
    return not world.ledger.read("read which replicas lag", partitions.lagging)


def equal_replicas(world: ReplicatedTable, version: int) -> list[int]:
    found = [sorted(world.ids(name, version)) for name in ("a", "b", "c")]
    assert found[0] == found[1] == found[2]
    return found[0]


def test_a_load_with_a_stream_open_to_a_node_that_stands_still_is_committed(world: ReplicatedTable) -> None:
    world.load(1)
    transaction, writer = world.begin(2)
    world.stoppable.stop("c")
    began_s = time.monotonic()
    written = writer.finish()
    committed = world.manager.commit("shop", transaction.txn_id, written)
    assert committed.state is TransactionState.COMMITTED
    assert world.publisher.publish_committed() == (transaction.txn_id,)
    assert time.monotonic() - began_s < WAITED_S_MAX
    assert world.ids("a", 2) == world.ids("b", 2) == [1, 2]
    world.load(3)
    goes_on(world, "c")
    until(lambda: caught_up(world))
    assert equal_replicas(world, 3) == [1, 2, 3]


def test_a_vote_is_not_waited_for(world: ReplicatedTable) -> None:
    transaction, writer = world.begin(1)
    written = writer.finish()
    world.stoppable.stop("b")
    world.manager.commit("shop", transaction.txn_id, written)
    assert world.publisher.publish_committed() == (transaction.txn_id,)
    assert [action for name, action in world.stoppable.calls if name == "b"][-1] == "prepare"
    goes_on(world, "b")
    until(lambda: caught_up(world))
    assert equal_replicas(world, 1) == [1]


def test_an_aborted_load_that_arrives_late_is_forgotten(world: ReplicatedTable) -> None:
    transaction, writer = world.begin(1)
    world.stoppable.stop("c")
    writer.finish()
    world.manager.abort("shop", transaction.txn_id, "asked to")
    assert world.publisher.tell_aborts() == 0
    goes_on(world, "c")
    until(lambda: world.publisher.tell_aborts() == 1)
    world.load(2)
    assert equal_replicas(world, 1) == [2]
    assert all(not tablet.prepared for tablet in world.nodes.at("c").status().tablets)


def test_a_truncate_does_not_wait_for_a_node_that_stands_still(world: ReplicatedTable) -> None:
    world.load(1)
    world.stoppable.stop("c")
    began_s = time.monotonic()
    world.catalogue.truncate("shop", "people")
    world.load(2)
    assert time.monotonic() - began_s < WAITED_S_MAX
    assert world.ids("a", 1) == world.ids("b", 1) == [2]
    goes_on(world, "c")
    assert world.catalogue.settle() > 0
    until(lambda: caught_up(world))
    assert equal_replicas(world, 1) == [2]


def test_nothing_is_told_while_a_call_that_was_given_up_may_still_arrive(world: ReplicatedTable) -> None:
    """A drop that came behind the table that was recreated would take it."""
    world.stoppable.stop("c")
    world.catalogue.drop_table("shop", "people")
    before = len(world.stoppable.calls)
    for _ in range(3):
        assert world.catalogue.settle() == 0
    assert [name for name, _ in world.stoppable.calls[before:]] == []
    goes_on(world, "c")
    assert world.catalogue.settle() == 1


def test_where_most_nodes_are_silent_none_is_given_up(world: ReplicatedTable) -> None:
    """Then it is this machine that is short of time: votes of slow nodes are waited for."""
    for name in ("b", "c"):
        world.stoppable.stop(name)
    assert not world.known.stands_still("b")
    world.stoppable.go_on("c")
    assert world.known.stands_still("b")
    goes_on(world, "b")


def test_a_node_that_works_for_long_is_waited_for(world: ReplicatedTable) -> None:
    began_s = time.monotonic()
    answered = world.known.ask("a", lambda node: until(lambda: time.monotonic() - began_s > 0.8) or "done")
    assert answered == "done"
