"""Moves of replicas over real tablets in folders: what is copied, what counts, what is dropped, what is
refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from rtolap.base.errors import NotFound, Refused
from rtolap.protocols.storage.messages import Heartbeat
from rtolap.stored.frontend.moves.mover import Mover, MoverSettings
from rtolap.stored.frontend.moves.requests import MoveRequests
from rtolap.stored.metastore import nodes as node_rows
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore import replica_moves
from rtolap.stored.metastore.database import Connection
from rtolap.stored.metastore.records import MoveReason, MoveState, Partition, Replica, Tablet
from rtolap.stored.stream_load.quorum import Shortfall, shortfall

from tests.support.stored.replicated_table import NAMES, PEOPLE, TABLET, ReplicatedTable

LOST_AFTER_MS = 600_000


class World(ReplicatedTable):
    """Three nodes with a table, and a mover. Heartbeats are sent by `beat`; `lose` makes one old."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.mover = Mover(
            self.ledger,
            self.mastership,
            self.participants,
            self.hosts,
            self.participants.sizes,
            replication=len(NAMES),
            settings=MoverSettings(lost_after_ms=LOST_AFTER_MS, grace_ms=0, replan_ms=0),
        )
        self.requests = MoveRequests(self.ledger, self.mastership, self.mover)

    def join(self, name: str) -> None:
        self.nodes.start(name)
        self.beat(name)

    def beat(self, name: str) -> None:
        self.known.heartbeat(name, Heartbeat(f"id-{name}", name, 1 << 30))

    def lose(self, name: str) -> None:
        """Stop a node, and make its last heartbeat older than the deadline."""
        self.nodes.stop(name)

        def work(connection: Connection) -> None:
            row = next(each for each in node_rows.all_nodes(connection) if each.name == name)
            old_ms = self.ledger.now_ms(connection) - LOST_AFTER_MS
            node_rows.refresh(connection, type(row)(name, row.node_id, name, 1, old_ms), old_ms)

        self.ledger.write("w", type(None), work)

    def move_until_done(self) -> None:
        for _ in range(20):
            self.mover.run_once()
            if not self.moves():
                return
        raise AssertionError(f"moves do not end: {self.moves()}")

    def moves(self) -> tuple[tuple[str, str, MoveReason, MoveState], ...]:
        found = self.ledger.read("r", replica_moves.all_moves)
        return tuple((each.old_node, each.node, each.reason, each.state) for each in found)

    def replicas(self) -> dict[str, str]:
        rows = self.ledger.read("r", lambda it: partition_rows.replicas_of(it, "shop", "people"))
        return {each.node: each.role for each in rows}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def test_a_lost_node_is_replaced_and_comes_back_as_an_empty_one(world: World) -> None:
    world.load(1, 2)
    world.load(3)
    world.join("d")
    assert world.mover.run_once() == 0, "nobody is lost"
    world.lose("c")
    world.move_until_done()
    assert world.replicas() == {"a": "", "b": "", "d": ""}
    assert world.ids("d", 2) == [1, 2, 3]
    world.load(4)
    assert world.ids("d", 3) == [1, 2, 3, 4]
    world.nodes.start("c")
    world.beat("c")
    assert world.versions("c") == {TABLET: 2}
    world.catalogue.settle()
    assert world.versions("c") == {}
    assert world.mover.run_once() == 0
    assert world.replicas() == {"a": "", "b": "", "d": ""}


def test_a_node_that_is_back_before_the_switch_keeps_its_replica(world: World) -> None:
    world.load(1)
    world.join("d")
    world.lose("c")
    world.mover.run_once()
    assert world.moves() == (("c", "d", MoveReason.LOST, MoveState.COPYING),)
    world.nodes.start("c")
    world.beat("c")
    world.mover.run_once()
    assert world.moves() == ()
    assert world.replicas() == {"a": "", "b": "", "c": ""}
    world.catalogue.settle()
    assert world.versions("d") == {}


def test_no_node_is_lost_to_a_master_that_has_just_begun_to_watch(world: World) -> None:
    world.load(1)
    world.join("d")
    world.lose("c")
    settings = MoverSettings(lost_after_ms=LOST_AFTER_MS, grace_ms=300_000, replan_ms=0)
    participants = world.participants
    mover = Mover(
        world.ledger, world.mastership, participants, world.hosts, participants.sizes, replication=3,
        settings=settings,
    )  # fmt: skip
    assert mover.run_once() == 0
    assert world.moves() == ()


def test_a_load_that_began_before_the_switch_is_committed_by_the_replicas_it_knew(world: World) -> None:
    """It was never sent to the new replica, and the vote of the old one is needed: a third is down."""
    world.load(1)
    world.join("d")
    world.nodes.stop("b")
    transaction, writer = world.begin(2)
    parts = writer.finish()
    world.requests.drain("c")
    while ("c", "d", MoveReason.DRAIN, MoveState.RETIRING) not in world.moves():
        world.mover.run_once()
    assert world.replicas() == {"a": "", "b": "", "c": "leaving", "d": "joining"}
    world.manager.commit("shop", transaction.txn_id, parts)
    world.mover.run_once()
    assert world.replicas()["c"] == "leaving", "what it voted for is not on the others yet"
    assert world.publisher.publish_committed() == (transaction.txn_id,)
    world.publisher.catch_up()
    world.mover.run_once()
    assert world.replicas() == {"a": "", "b": "", "d": ""}
    world.nodes.stop("c")
    assert world.ids("d", 2) == [1, 2]


def test_a_commit_whose_voter_is_lost_is_published_by_copies(world: World) -> None:
    """Two of three voted; one of them is lost before it publishes, and the third was never sent the rows."""
    world.load(1)
    world.nodes.stop("b")
    txn_id = world.commit(2).txn_id
    world.nodes.stop("c")
    assert world.publisher.publish_committed() == ()
    world.nodes.start("b")
    assert world.publisher.publish_committed() == (txn_id,)
    assert world.ids("a", 2) == world.ids("b", 2) == [1, 2]


def test_the_old_replica_takes_its_place_again_when_the_new_node_is_lost(world: World) -> None:
    world.load(1)
    world.join("d")
    world.requests.drain("c")
    while ("c", "d", MoveReason.DRAIN, MoveState.SWITCHED) not in world.moves():
        world.mover.run_once()
    world.lose("d")
    world.requests.drain("c", undo=True)
    world.move_until_done()
    assert world.replicas() == {"a": "", "b": "", "c": ""}


def test_a_table_that_is_dropped_while_it_moves_leaves_nothing_behind(world: World) -> None:
    world.load(1)
    world.join("d")
    world.requests.drain("c")
    world.mover.run_once()
    assert world.moves()
    world.catalogue.drop_table("shop", "people")
    assert world.moves() == ()
    assert world.mover.run_once() == 0
    for node in ("a", "b", "c", "d"):
        assert world.nodes.at(node).status().tablets == ()


def test_a_drain_is_refused_by_name(world: World) -> None:
    world.load(1)
    with pytest.raises(NotFound, match="never sent a heartbeat"):
        world.requests.drain("nobody", undo=True)
    with pytest.raises(Refused, match="cannot be drained") as refused:
        world.requests.drain("c")
    assert "start another storage node" in str(refused.value)
    world.join("d")
    world.join("e")
    world.requests.drain("c")
    world.mover.run_once()
    with pytest.raises(Refused, match="cannot be drained now"):
        world.requests.drain("b")
    with pytest.raises(Refused, match="cannot be rebalanced now"):
        world.requests.rebalance()
    world.move_until_done()
    world.requests.drain("b")


def test_new_tablets_are_not_placed_on_a_node_that_is_drained(world: World) -> None:
    world.join("d")
    world.requests.drain("d")
    assert "d" not in world.ledger.read("r", world.known.open)
    assert "d" in world.ledger.read("r", world.known.alive)
    world.beat("d")
    assert "d" not in world.ledger.read("r", world.known.open), "a heartbeat does not end the drain"
    world.requests.drain("d", undo=True)
    assert "d" in world.ledger.read("r", world.known.open)


def test_a_request_to_rebalance_that_is_sent_again_is_made_once(world: World) -> None:
    world.load(1)
    world.catalogue.create_table(msgspec.structs.replace(PEOPLE, name="others"))
    world.join("d")
    tablets = (TABLET, Tablet(Partition("shop", "others", "all", 1), 0))
    sizes = dict.fromkeys(tablets, 10)
    mover = Mover(
        world.ledger, world.mastership, world.participants, world.hosts, lambda node: sizes, replication=3
    )
    requests = MoveRequests(world.ledger, world.mastership, mover)
    planned = requests.rebalance(plan_only=True)
    assert [(move.old_node, move.node, move.bytes) for move in planned] == [("c", "d", 10)]
    assert world.moves() == ()
    assert requests.rebalance(request_id="one") == requests.rebalance(request_id="one") == planned
    assert world.moves() == (("c", "d", MoveReason.REBALANCE, MoveState.COPYING),)
    with pytest.raises(Refused, match="no move under way"):
        requests.rebalance(request_id="two")
    world.move_until_done()
    assert requests.rebalance() == ()


def test_the_status_shows_what_each_node_has(world: World) -> None:
    world.load(1)
    world.join("d")
    found = {each.name: each for each in world.requests.status().nodes}
    assert {name: (each.state, each.replicas, each.bytes > 0) for name, each in found.items()} == {
        "a": ("open", 1, True), "b": ("open", 1, True), "c": ("open", 1, True), "d": ("open", 0, False),
    }  # fmt: skip


def test_while_a_replica_moves_a_majority_of_either_set_decides() -> None:
    tablet = Tablet(Partition("d", "t", "p"), 0)
    replicas = [
        Replica(tablet, "a", 0), Replica(tablet, "b", 0),
        Replica(tablet, "c", 0, "leaving"), Replica(tablet, "d", 0, "joining"),
    ]  # fmt: skip

    def short(*nodes: str) -> Shortfall | None:
        return shortfall(replicas, dict.fromkeys(nodes, (tablet,)))

    assert short("a", "c") is short("a", "d") is short("a", "b") is None
    assert short("c", "d") == Shortfall(tablet, 1, 2, ("a", "b"))
    assert short("a") == Shortfall(tablet, 1, 2, ("b", "d"))
