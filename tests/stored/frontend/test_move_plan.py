"""The plan of moves is pure: over random layouts it keeps its promises."""

from __future__ import annotations

import random
from collections.abc import Collection

import pytest
from rtolap.base.errors import IllegalTransition
from rtolap.stored.frontend.moves.plan import (
    SPREAD,
    Layout,
    NodeState,
    PlannedMove,
    plan_rebalance,
    plan_repairs,
)
from rtolap.stored.frontend.moves.states import TABLE, MoveAction, MoveEvent, transition
from rtolap.stored.metastore.records import MoveReason, MoveState, Partition, Tablet

from tests.support.seeds import so_many

SEEDS = so_many(200)
REPLICATION = 3
P = Partition("d", "t", "p")


def drawn(rng: random.Random, states: Collection[NodeState]) -> Layout:
    nodes = {f"n{number}": rng.choice(tuple(states)) for number in range(rng.randint(1, 8))}
    holders, sizes = {}, {}
    largest = rng.choice((1, 10, 1000))
    for bucket in range(rng.randint(0, 40)):
        tablet = Tablet(P, bucket)
        holders[tablet] = frozenset(rng.sample(sorted(nodes), min(rng.randint(1, 3), len(nodes))))
        sizes[tablet] = rng.choice((0, rng.randint(1, largest), rng.randint(1, largest)))
    readable = {tablet for tablet in holders if rng.random() < 0.9}
    moving = {tablet for tablet in holders if rng.random() < 0.1}
    barred = {(P, node) for node in nodes if rng.random() < 0.1}
    return Layout(holders, readable, nodes, moving, sizes, barred)


def after(layout: Layout, moves: Collection[PlannedMove]) -> Layout:
    """Return the layout when these moves have ended."""
    holders = {tablet: set(nodes) for tablet, nodes in layout.holders.items()}
    for move in moves:
        holders[move.tablet] = holders[move.tablet] - {move.old_node} | {move.node}
    return layout._replace(holders=holders)


def healthy(layout: Layout, tablet: Tablet) -> int:
    alive = (NodeState.OPEN, NodeState.DRAINING)
    return sum(layout.nodes[node] in alive for node in layout.holders[tablet])


def check(layout: Layout, moves: Collection[PlannedMove]) -> None:
    assert len({move.tablet for move in moves}) == len(moves), "one move of a tablet at a time"
    then = after(layout, moves)
    for move in moves:
        tablet = move.tablet
        assert move.node not in layout.holders[tablet], "never two on a node"
        assert layout.nodes[move.node] is NodeState.OPEN
        assert move.old_node == "" or move.old_node in layout.holders[tablet]
        assert tablet in layout.readable
        assert tablet not in layout.moving
        assert (tablet.partition, move.node) not in layout.barred
        assert healthy(then, tablet) >= healthy(layout, tablet)
        assert len(then.holders[tablet]) >= len(layout.holders[tablet])


@pytest.mark.seeded
def test_repairs_lose_no_healthy_replica_and_end() -> None:
    reasons = set()
    for seed in range(SEEDS):
        layout = drawn(random.Random(seed), NodeState)._replace(moving=())
        for _ in range(200):
            moves = plan_repairs(layout, REPLICATION, 7)
            if not moves:
                break
            check(layout, moves)
            reasons.update(move.reason for move in moves)
            layout = after(layout, moves)
        else:
            raise AssertionError(f"seed {seed}: repairs do not end")
        free = {node for node, state in layout.nodes.items() if state is NodeState.OPEN}
        free -= {node for _, node in layout.barred}
        for tablet in layout.readable:
            nodes = layout.holders[tablet]
            gone = [n for n in nodes if layout.nodes[n] in (NodeState.LOST, NodeState.DRAINING)]
            assert not (gone or len(nodes) < REPLICATION) or not free - set(nodes), f"seed {seed}: {tablet}"
    assert reasons == {MoveReason.LOST, MoveReason.RAISE, MoveReason.DRAIN}


@pytest.mark.seeded
def test_rebalancing_ends_within_the_bound_and_a_second_plan_is_empty() -> None:
    planned = 0
    for seed in range(SEEDS):
        layout = drawn(random.Random(seed), NodeState)
        nodes = {**layout.nodes, "new": NodeState.OPEN}
        layout = layout._replace(moving=(), barred=(), readable=layout.holders, nodes=nodes)
        for _ in range(200):
            moves = plan_rebalance(layout, 10)
            if not moves:
                break
            check(layout, moves)
            planned += len(moves)
            layout = after(layout, moves)
        else:
            raise AssertionError(f"seed {seed}: rebalancing does not end")
        loads = [
            sum(size for tablet, size in layout.sizes.items() if node in layout.holders[tablet])
            for node, state in layout.nodes.items()
            if state is NodeState.OPEN
        ]
        if loads:
            bound = max(SPREAD * sum(loads) / len(loads), max(layout.sizes.values(), default=0))
            assert max(loads) - min(loads) <= bound, f"seed {seed}: {loads}"
    assert planned > SEEDS


@pytest.mark.seeded
def test_moves_under_way_and_drops_that_are_owed_are_planned_around() -> None:
    for seed in range(SEEDS):
        layout = drawn(random.Random(seed), NodeState)
        check(layout, plan_repairs(layout, REPLICATION, 100))
        check(layout, plan_rebalance(layout, 100))


def test_the_emptiest_node_is_taken_first_and_the_lost_come_before_the_raised() -> None:
    one, two = Tablet(P, 1), Tablet(P, 2)
    layout = Layout(
        holders={one: {"a"}, two: {"a", "gone"}},
        readable={one, two},
        nodes={"a": NodeState.OPEN, "b": NodeState.OPEN, "c": NodeState.OPEN, "gone": NodeState.LOST},
        sizes={one: 10, two: 20},
    )
    assert plan_repairs(layout, 2, 10) == (
        PlannedMove(two, "gone", "b", MoveReason.LOST),
        PlannedMove(one, "", "c", MoveReason.RAISE),
    )


def test_a_tablet_that_no_living_node_has_stays_where_it_is() -> None:
    tablet = Tablet(P, 1)
    nodes = {"gone": NodeState.LOST, "a": NodeState.OPEN}
    assert plan_repairs(Layout({tablet: {"gone"}}, (), nodes), 1, 10) == ()


def test_every_state_of_a_move_has_a_way_to_its_end_and_every_action_a_use() -> None:
    ending = {state for (state, _), (after, _) in TABLE.items() if after is None}
    while True:
        reaching = ending | {state for (state, _), (after, _) in TABLE.items() if after in ending}
        if reaching == ending:
            break
        ending = reaching
    assert ending == set(MoveState)
    assert {action for _, action in TABLE.values()} == set(MoveAction)
    assert {event for _, event in TABLE} == set(MoveEvent)
    with pytest.raises(IllegalTransition, match="COPYING"):
        transition(MoveState.COPYING, MoveEvent.OVER)
