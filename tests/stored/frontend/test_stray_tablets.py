"""What a late call has left of a partition that was dropped goes; what the ledger cannot prove stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.base.errors import NotFound, Unavailable
from rtolap.model.stored.table import RangePartitions, StoredColumn, StoredTable
from rtolap.protocols.storage.messages import CatchUp, CreateTablets, Missed, TabletId
from rtolap.protocols.stored_tables.messages import AddPartition
from rtolap.stored.frontend.catalogue.stray_tablets import StrayTablets, is_gone, is_unplaced
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore.records import BeginRequest, Partition, Tablet

from tests.support.stored.replicated_table import NAMES, ReplicatedTable

DAILY = StoredTable(
    database="shop",
    name="daily",
    columns=(StoredColumn("day", "timestamp", nullable=False), StoredColumn("id", "int")),
    keys=("day", "id"),
    model="duplicate",
    partitions=RangePartitions(column="day", unit="day", ahead=0),
)
DAY_MS = 86_400_000
DAY = AddPartition(name="p20300101", start_ms=21915 * DAY_MS, end_ms=21916 * DAY_MS)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ReplicatedTable]:
    made = ReplicatedTable(tmp_path)
    made.catalogue.create_table(DAILY)
    made.catalogue.add_partition("shop", "daily", DAY)
    yield made
    made.close()


def strays(world: ReplicatedTable) -> StrayTablets:
    return StrayTablets(
        world.ledger, world.mastership, world.hosts, world.participants.tablets, world.known.alive
    )


def day_of(world: ReplicatedTable) -> TabletId:
    entry = world.catalogue.table("shop", "daily")
    (found,) = {each.tablet for each in entry.replicas if each.tablet.partition.name == DAY.name}
    return TabletId(entry.table_id, "shop", "daily", DAY.name, 0, found.partition.incarnation)


def kept(world: ReplicatedTable, name: str) -> set[TabletId]:
    return {each.tablet for each in world.nodes.nodes[name].status().tablets if each.tablet.table == "daily"}


def late_copy(world: ReplicatedTable, name: str, tablet: TabletId) -> None:
    schema = world.catalogue.table("shop", "daily").schema
    world.nodes.nodes[name].catch_up(CatchUp(tablet, schema, (Missed(1, None),), ()))


def test_a_late_copy_of_a_dropped_partition_is_dropped_where_it_came_to(world: ReplicatedTable) -> None:
    tablet = day_of(world)
    others = {name: kept(world, name) - {tablet} for name in NAMES}
    world.catalogue.drop_partition("shop", "daily", DAY.name)
    late_copy(world, "a", tablet)
    assert kept(world, "a") == others["a"] | {tablet}
    world.nodes.stop("b")  # a node that does not answer hinders no other
    assert strays(world).run_once() == 1
    world.nodes.start("b")
    assert {name: kept(world, name) for name in NAMES} == others
    assert strays(world).run_once() == 0


def test_a_late_call_does_not_reach_the_partition_that_was_made_again(world: ReplicatedTable) -> None:
    before = day_of(world)
    world.catalogue.drop_partition("shop", "daily", DAY.name)
    world.catalogue.add_partition("shop", "daily", DAY)
    again = day_of(world)
    assert again.incarnation > before.incarnation
    with pytest.raises(NotFound):
        late_copy(world, "a", before)
    old = Partition("shop", "daily", DAY.name, before.incarnation)
    with pytest.raises(NotFound):
        world.participants.catch_up("a", Tablet(old, 0), (), ())
    assert strays(world).run_once() == 0
    assert again in kept(world, "a")


def test_a_commit_into_a_partition_that_was_made_again_is_refused(world: ReplicatedTable) -> None:
    before = day_of(world)
    transaction = world.manager.begin(BeginRequest("shop", ("daily",), "l", "l", 60_000))
    world.catalogue.drop_partition("shop", "daily", DAY.name)
    world.catalogue.add_partition("shop", "daily", DAY)
    old = Partition("shop", "daily", DAY.name, before.incarnation)
    with pytest.raises(NotFound, match="is not there"):
        world.manager.commit("shop", transaction.txn_id, (old,))


def test_what_the_ledger_does_not_know_stays(world: ReplicatedTable) -> None:
    """The ledger may be another cluster's, or an old backup."""
    tablet = day_of(world)
    schema = world.catalogue.table("shop", "daily").schema
    unknown = (
        TabletId(tablet.table_id + 9, "shop", "daily", "p1", 0, 1),
        TabletId(7, "shop", "nope", "p1", 0, 1),
        TabletId(tablet.table_id, "shop", "daily", "p2", 0, 99),
    )
    world.nodes.nodes["a"].create(CreateTablets(unknown, schema))
    assert strays(world).run_once() == 0
    assert {each.tablet for each in world.nodes.nodes["a"].status().tablets} >= {*unknown, tablet}


def test_a_node_that_cannot_drop_keeps_it_until_the_next_round(
    world: ReplicatedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    tablet = day_of(world)
    world.catalogue.drop_partition("shop", "daily", DAY.name)
    for name in ("a", "b"):
        late_copy(world, name, tablet)
    drop = world.hosts.drop

    def failing(node: str, table_id: int, partition: Partition, buckets: list[int]) -> None:
        if node == "a":
            raise Unavailable("its disk is full")
        drop(node, table_id, partition, buckets)

    monkeypatch.setattr(world.hosts, "drop", failing)
    assert strays(world).run_once() == 1
    assert (tablet in kept(world, "a"), tablet in kept(world, "b")) == (True, False)
    monkeypatch.undo()
    assert strays(world).run_once() == 1


@pytest.mark.parametrize(
    ("tablet", "gone"),
    [
        (TabletId(5, "d", "t", "p", 0, 3), False),  # it lives
        (TabletId(5, "d", "t", "p", 0, 2), True),  # it was dropped and made again
        (TabletId(5, "d", "t", "q", 0, 1), True),  # it was dropped
        (TabletId(5, "d", "t", "q", 0, 0), True),  # and was made by a version that gave no incarnations
        (TabletId(5, "d", "t", "q", 0, 9), False),  # the ledger has not given this incarnation yet
        (TabletId(4, "d", "t", "p", 0, 3), True),  # of a table that was dropped and made again
        (TabletId(6, "d", "t", "p", 0, 3), False),  # of a table that the ledger does not know
    ],
)
def test_only_what_was_given_and_is_no_more_is_gone(tablet: TabletId, gone: bool) -> None:
    assert is_gone(tablet, 5, 4, {Partition("d", "t", "p", 3)}) is gone


@pytest.mark.parametrize(
    ("elsewhere", "unplaced"),
    [
        ({"b": 3, "c": 3}, True),
        ({"b": 3, "c": 2}, False),  # c has less: this may be the better copy
        ({"b": 3}, False),  # c does not answer, or has nothing
    ],
)
def test_only_what_every_replica_has_is_unplaced(elsewhere: dict[str, int], unplaced: bool) -> None:
    tablet = TabletId(5, "d", "t", "p", 0, 3)
    found = {node: {tablet: version} for node, version in {"x": 3, **elsewhere}.items()}
    assert is_unplaced(tablet, "x", found, {"b", "c"}) is unplaced
    assert not is_unplaced(tablet, "x", found, {"x", "b", "c"})
    assert not is_unplaced(tablet, "x", found, ())


def test_a_replica_on_a_node_that_is_not_to_have_it_is_dropped(world: ReplicatedTable) -> None:
    """A copy of a move came late, after the move was called off."""
    tablet = day_of(world)
    part = Partition("shop", "daily", DAY.name, tablet.incarnation)
    world.ledger.write("w", type(None), lambda it: partition_rows.remove(it, Tablet(part, 0), "c"))
    assert tablet in kept(world, "c")
    world.nodes.stop("b")
    assert strays(world).run_once() == 0, "a replica does not answer: this may be the only copy"
    world.nodes.start("b")
    assert strays(world).run_once() == 1
    assert strays(world).run_once() == 0, "its task is pending"
    world.catalogue.settle()
    assert (tablet in kept(world, "c"), tablet in kept(world, "a")) == (False, True)
