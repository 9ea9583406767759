"""A node that fails in whatever way harms nobody: loads become visible by the majority, and it catches up."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from rtolap.base.errors import RtolapError, Unauthorized, Unavailable
from rtolap.stored.metastore.records import Partition, Tablet, TransactionState
from rtolap.stored.node.tablet_replicas import TabletReplica

from tests.support.stored.replicated_table import PEOPLE, ReplicatedTable


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ReplicatedTable]:
    with ReplicatedTable(tmp_path) as made:
        yield made


class Failing:
    """A node that answers every call with this error; how many came."""

    def __init__(self, error: Exception) -> None:
        self._error, self.calls = error, 0

    def __getattr__(self, name: str) -> object:
        def call(*_: object) -> None:
            self.calls += 1
            raise self._error

        return call


def fail(world: ReplicatedTable, name: str, error: Exception) -> Failing:
    found = Failing(error)
    client = world.known.client
    world.known.client = lambda node: found if node == name else client(node)  # type: ignore[method-assign, assignment, return-value]
    return found


def heal(world: ReplicatedTable) -> None:
    del world.known.client  # type: ignore[misc]


@pytest.mark.parametrize(
    "error",
    [Unavailable("it is away"), Unauthorized("it does not accept the token"), RtolapError("a fault of it")],
    ids=lambda error: error.code,
)
def test_two_nodes_go_on_whatever_the_third_one_answers(world: ReplicatedTable, error: RtolapError) -> None:
    committed = world.commit(1)
    aborted, _ = world.begin(9)
    world.manager.abort("shop", aborted.txn_id, "asked to")
    fail(world, "c", error)
    second = world.commit(2)
    assert second.state is TransactionState.COMMITTED
    assert world.publisher.publish_committed() == (committed.txn_id, second.txn_id)
    assert world.publisher.catch_up() == 0
    assert world.publisher.tell_aborts() == 0
    assert world.rebuilding.run_once() == 0
    assert world.ids("a", 2) == world.ids("b", 2) == [1, 2]
    heal(world)
    assert world.publisher.catch_up() == 1
    assert world.publisher.tell_aborts() == 1
    assert world.ids("c", 2) == [1, 2]


def test_a_transaction_that_cannot_be_published_holds_up_no_other_table(world: ReplicatedTable) -> None:
    world.catalogue.create_table(msgspec.structs.replace(PEOPLE, name="other"))
    stuck, free = world.commit(1), world.commit(2, name="other")
    publish = world.participants.publish

    def failing(
        node: str, txn_id: int, versions: Mapping[Partition, int], tablets: Collection[Tablet]
    ) -> frozenset[Tablet]:
        if txn_id == stuck.txn_id:
            raise RtolapError("a fault of the node")
        return publish(node, txn_id, versions, tablets)

    world.participants.publish = failing  # type: ignore[method-assign]
    assert world.publisher.publish_committed() == (free.txn_id,)
    world.participants.publish = publish  # type: ignore[method-assign]
    assert world.publisher.publish_committed() == (stuck.txn_id,)


def test_a_fault_of_the_program_in_one_tablet_is_a_node_that_lacks_the_version(
    world: ReplicatedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = world.commit(1)
    open_tablet = TabletReplica.open

    def failing(slot: TabletReplica) -> object:
        if "/c/" in str(slot.place):
            raise pa.ArrowInvalid("offset overflow")
        return open_tablet(slot)

    monkeypatch.setattr(TabletReplica, "open", failing)
    assert world.publisher.publish_committed() == (committed.txn_id,)
    monkeypatch.undo()
    assert world.publisher.catch_up() == 1
    assert world.ids("c", 1) == [1]


def test_a_silent_node_is_waited_for_once_a_round(world: ReplicatedTable) -> None:
    world.catalogue.create_table(msgspec.structs.replace(PEOPLE, name="other"))
    silent = fail(world, "c", Unavailable("no answer within the time"))
    for name in ("people", "other"):
        world.commit(1, name=name)
        aborted, _ = world.begin(9, name=name)
        world.manager.abort("shop", aborted.txn_id, "asked to")
    for work in (world.publisher.publish_committed, world.publisher.catch_up, world.publisher.tell_aborts):
        silent.calls = 0
        work()
        assert silent.calls == 1, work
    heal(world)
    assert world.publisher.catch_up() == 2
    assert world.publisher.tell_aborts() == 2


def test_a_node_that_was_away_when_a_table_was_made_catches_up(world: ReplicatedTable) -> None:
    world.nodes.stop("c")
    world.living = ("a", "b")
    world.catalogue.drop_table("shop", "people")
    world.catalogue.create_table(PEOPLE)
    world.load(1)
    world.nodes.start("c")
    assert world.catalogue.settle() > 0
    assert world.publisher.catch_up() == 1
    assert world.ids("c", 1) == [1]


def test_an_abort_is_told_once_to_each_node_that_answers(world: ReplicatedTable) -> None:
    aborted, _ = world.begin(9)
    world.manager.abort("shop", aborted.txn_id, "asked to")
    fail(world, "a", Unavailable("it is away"))
    told: list[str] = []
    abort = world.participants.abort

    def noted(node: str, txn_id: int) -> None:
        abort(node, txn_id)
        told.append(node)

    world.participants.abort = noted  # type: ignore[method-assign]
    for _ in range(3):
        assert world.publisher.tell_aborts() == 0
    assert told == ["b", "c"]
    heal(world)
    assert world.publisher.tell_aborts() == 1
    assert told == ["b", "c", "a"]
