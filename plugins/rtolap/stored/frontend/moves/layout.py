"""The input of the planner, read from the ledger at one moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rtolap.stored.frontend.moves.plan import Layout, NodeState
from rtolap.stored.metastore import nodes as node_rows
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore import pending_tablet_tasks as tasks
from rtolap.stored.metastore.database import Connection
from rtolap.stored.metastore.records import MoveState, Partition, ReplicaMove, StorageNode, Tablet


@dataclass(frozen=True)
class Members:
    """The storage nodes: the state of each, and those that have a lease."""

    states: Mapping[str, NodeState]
    alive: frozenset[str]


def read_members(
    connection: Connection, now_ms: int, lost_after_ms: int, watched_since_ms: int, grace_ms: int
) -> Members:
    """Return the storage nodes. None is lost before this master has watched for a while: heartbeats of nodes
    that live have come by then, whatever was away before.
    """
    rows = node_rows.all_nodes(connection)
    watched = now_ms - watched_since_ms >= min(grace_ms, lost_after_ms)

    def state(node: StorageNode) -> NodeState:
        if watched and node.lease_until_ms + lost_after_ms <= now_ms:
            return NodeState.LOST
        if node.draining:
            return NodeState.DRAINING
        return NodeState.OPEN if node.lease_until_ms > now_ms else NodeState.AWAY

    alive = frozenset(node.name for node in rows if node.lease_until_ms > now_ms)
    return Members({node.name: state(node) for node in rows}, alive)


def read_layout(
    connection: Connection, members: Members, moving: Sequence[ReplicaMove], sizes: Mapping[Tablet, int]
) -> Layout:
    holders: dict[Tablet, set[str]] = defaultdict(set)
    versions = partition_rows.all_versions(connection)
    readable: set[Tablet] = set()
    for replica in partition_rows.all_replicas(connection):
        tablet = replica.tablet
        known = versions.get(tablet.partition)
        if known is None:
            continue  # made since the versions were read
        if replica.role != "leaving":
            holders[tablet].add(replica.node)
        if known.committed == 0 or (replica.node in members.alive and replica.version >= known.visible):
            readable.add(tablet)
    for move in moving:
        if move.state is MoveState.COPYING:
            holders[move.tablet] = holders[move.tablet] - {move.old_node} | {move.node}
    return Layout(
        holders=holders,
        readable=readable,
        nodes=members.states,
        moving={move.tablet for move in moving},
        sizes=sizes,
        barred=_barred(connection),
    )


def _barred(connection: Connection) -> Collection[tuple[Partition, str]]:
    return {(task.partition, task.node) for task in tasks.all_tasks(connection) if task.kind == "drop"}
