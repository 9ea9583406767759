"""The plan of moves: which replica goes where. Pure.

Every choice takes the node with the fewest bytes first, and never one that has the tablet already. A tablet
has one move at a time. A tablet that no living node has at its visible version stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import NamedTuple

from rtolap.stored.metastore.records import MoveReason, Partition, Tablet

SPREAD = 0.1  # of the mean: bytes of two nodes may differ by so much, or by the largest tablet


class NodeState(StrEnum):
    """The state of a node, as the planner knows it.

    Attributes:
        OPEN: it lives and takes replicas.
        DRAINING: its replicas are to go to other nodes.
        AWAY: it does not answer, and may be back.
        LOST: it was away for so long that it is replaced.
    """

    OPEN = "open"
    DRAINING = "draining"
    AWAY = "away"
    LOST = "lost"


class PlannedMove(NamedTuple):
    tablet: Tablet
    old_node: str
    node: str
    reason: MoveReason


class Layout(NamedTuple):
    """The places of replicas, and what is known of nodes.

    Attributes:
        holders: the nodes of each tablet, where those of moves under way have ended.
        readable: tablets that a living node has at the visible version.
        moving: tablets with a move under way.
        sizes: bytes of each tablet; those that are missing are empty.
        barred: (partition, node) where a node has a pending task to drop what it had of the partition.
    """

    holders: Mapping[Tablet, Collection[str]]
    readable: Collection[Tablet]
    nodes: Mapping[str, NodeState]
    moving: Collection[Tablet] = ()
    sizes: Mapping[Tablet, int] = {}
    barred: Collection[tuple[Partition, str]] = ()


def plan_repairs(layout: Layout, replication: int, moves_max: int) -> tuple[PlannedMove, ...]:
    """Return moves that replace lost replicas, then those that raise, then those that drain."""
    wanted: list[tuple[int, Tablet, str, MoveReason]] = []
    for tablet in sorted(layout.holders):
        if tablet in layout.moving or tablet not in layout.readable:
            continue
        nodes = sorted(layout.holders[tablet])
        lost = [node for node in nodes if layout.nodes.get(node) is NodeState.LOST]
        draining = [node for node in nodes if layout.nodes.get(node) is NodeState.DRAINING]
        if lost:
            wanted.append((0, tablet, lost[0], MoveReason.LOST))
        elif len(nodes) < replication and not draining:
            wanted.append((1, tablet, "", MoveReason.RAISE))
        elif draining:
            wanted.append((2, tablet, draining[0], MoveReason.DRAIN))
    loads = _loads(layout, empty_bytes=1)  # so that empty ones are spread as well
    moves: list[PlannedMove] = []
    for _, tablet, old_node, reason in sorted(wanted):
        if len(moves) == moves_max:
            break
        target = _emptiest(layout, loads, tablet)
        if target is not None:
            moves.append(PlannedMove(tablet, old_node, target, reason))
            loads[target] += layout.sizes.get(tablet, 0) or 1
    return tuple(moves)


def plan_rebalance(layout: Layout, moves_max: int, spread: float = SPREAD) -> tuple[PlannedMove, ...]:
    """Return moves after which the bytes of open nodes are even.

    They are even where no two nodes differ by more than `spread` of the mean, or than the largest tablet.
    """
    loads = _loads(layout)
    holders = {tablet: set(nodes) for tablet, nodes in layout.holders.items()}
    movable = sorted(set(layout.readable) & holders.keys() - set(layout.moving))
    moved: dict[Tablet, PlannedMove] = {}
    while loads and len(moved) < moves_max:
        bound = max(spread * sum(loads.values()) / len(loads), max(layout.sizes.values(), default=0))
        fullest, emptiest = (pick(loads, key=lambda node: (loads[node], node)) for pick in (max, min))
        gap = loads[fullest] - loads[emptiest]
        if gap <= bound:
            break
        choices = [
            tablet
            for tablet in movable
            if tablet not in moved
            and fullest in holders[tablet]
            and emptiest not in holders[tablet]
            and (tablet.partition, emptiest) not in layout.barred
            and 0 < layout.sizes.get(tablet, 0) < gap
        ]
        if not choices:
            break  # the next plan begins with what these moves have made of it
        best = min(choices, key=lambda tablet: (abs(2 * layout.sizes[tablet] - gap), tablet))
        moved[best] = PlannedMove(best, fullest, emptiest, MoveReason.REBALANCE)
        holders[best] = holders[best] - {fullest} | {emptiest}
        loads[fullest] -= layout.sizes[best]
        loads[emptiest] += layout.sizes[best]
    return tuple(moved.values())


def _loads(layout: Layout, *, empty_bytes: int = 0) -> dict[str, int]:
    """Return the bytes of each open node; an empty replica counts as `empty_bytes`."""
    loads = {node: 0 for node, state in layout.nodes.items() if state is NodeState.OPEN}
    for tablet, nodes in layout.holders.items():
        for node in loads.keys() & set(nodes):
            loads[node] += layout.sizes.get(tablet, 0) or empty_bytes
    return loads


def _emptiest(layout: Layout, loads: Mapping[str, int], tablet: Tablet) -> str | None:
    able = [
        node
        for node in loads
        if node not in layout.holders[tablet] and (tablet.partition, node) not in layout.barred
    ]
    return min(able, key=lambda node: (loads[node], node), default=None)
