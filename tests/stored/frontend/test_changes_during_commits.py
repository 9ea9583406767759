"""Tables are changed while loads into them are committed: one of the two waits, and nothing is stuck."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
from rtolap.base.errors import NotFound, NotYet, Unavailable
from rtolap.stored.metastore.records import Tablet, TransactionState

from tests.support.stored.replicated_table import NAMES, PEOPLE, ReplicatedTable


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ReplicatedTable]:
    with ReplicatedTable(tmp_path) as made:
        yield made


def after_the_last_vote(world: ReplicatedTable, act: Callable[[], object]) -> None:
    votes = 0
    prepare = world.participants.prepare

    def prepared(node: str, txn_id: int, tablets: Collection[Tablet]) -> frozenset[Tablet]:
        nonlocal votes
        held = prepare(node, txn_id, tablets)
        votes += 1
        if votes == len(NAMES):
            act()
        return held

    world.participants.prepare = prepared  # type: ignore[method-assign]


def change_in_vain(world: ReplicatedTable, change: Callable[[], object]) -> list[str]:
    """Have it tried between votes and commit; what it was told."""
    told: list[str] = []

    def attempt() -> None:
        with pytest.raises(NotYet) as caught:
            change()
        told.append(str(caught.value))

    after_the_last_vote(world, attempt)
    return told


@pytest.mark.parametrize("what", ["truncate", "drop_table"])
def test_a_table_is_not_emptied_between_the_votes_and_the_commit(world: ReplicatedTable, what: str) -> None:
    told = change_in_vain(world, lambda: getattr(world.catalogue, what)("shop", "people"))
    world.load(1)
    assert len(told) == 1
    assert world.ids("a", 1) == [1]
    world.load(2)
    getattr(world.catalogue, what)("shop", "people")


def test_a_table_is_not_emptied_between_the_votes_and_the_first_phase(world: ReplicatedTable) -> None:
    told = change_in_vain(world, lambda: world.catalogue.truncate("shop", "people"))
    transaction, writer = world.begin(1, two_phase=True)
    world.manager.precommit("shop", transaction.txn_id, writer.finish())
    assert len(told) == 1
    committed = world.manager.commit_precommitted("shop", transaction.txn_id)
    assert committed.state is TransactionState.COMMITTED
    assert world.publisher.publish_committed() == (transaction.txn_id,)
    assert world.ids("a", 1) == [1]


def test_a_load_into_a_table_that_was_emptied_before_the_votes_fails_and_the_next_ones_do_not(
    world: ReplicatedTable,
) -> None:
    transaction, writer = world.begin(1)
    written = writer.finish()
    world.catalogue.truncate("shop", "people")
    with pytest.raises(Unavailable, match="succ replica num 0"):
        world.manager.commit("shop", transaction.txn_id, written)
    world.load(2)
    assert world.ids("a", 1) == [2]


def test_a_partition_that_is_gone_before_the_votes_is_named(world: ReplicatedTable) -> None:
    transaction, writer = world.begin(1)
    written = writer.finish()
    world.catalogue.drop_table("shop", "people")
    with pytest.raises(NotFound, match="people/all is not there"):
        world.manager.commit("shop", transaction.txn_id, written)
    world.catalogue.create_table(PEOPLE)
    world.load(2)
    assert world.ids("a", 1) == [2]
