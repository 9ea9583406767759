"""Requests to the mover: to drain a node, to even bytes out, to show its progress."""

from __future__ import annotations

from collections import Counter

from rtolap.base.errors import NotFound, Refused
from rtolap.protocols.storage.messages import MoveInfo, MovesInfo, NodeReplicas
from rtolap.stored.frontend.election import Mastership
from rtolap.stored.frontend.moves.layout import read_layout
from rtolap.stored.frontend.moves.mover import Mover
from rtolap.stored.frontend.moves.plan import NodeState, PlannedMove, plan_rebalance
from rtolap.stored.metastore import nodes as node_rows
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore import replica_moves as moves
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.records import MoveReason, ReplicaMove

MOVES_MAX = 100  # of one request to even bytes out; the next one goes on


class MoveRequests:
    """Requests about moves. Thread-safe; changes raise NotLeader on a front end that is not master."""

    def __init__(self, ledger: Ledger, mastership: Mastership, mover: Mover) -> None:
        self._ledger, self._mastership, self._mover = ledger, mastership, mover

    def status(self) -> MovesInfo:
        """Return the nodes with what they have, and the moves that are under way."""
        members = self._ledger.read("read the storage nodes", self._mover.members)
        sizes = {node: self._mover.sizes((node,)) for node in members.alive}
        known = {tablet: size for each in sizes.values() for tablet, size in each.items()}

        def work(connection: Connection) -> MovesInfo:
            counts = Counter(replica.node for replica in partition_rows.all_replicas(connection))
            nodes = tuple(
                NodeReplicas(
                    name=name,
                    state=state.value,
                    replicas=counts[name],
                    bytes=sum(sizes.get(name, {}).values()),
                )
                for name, state in sorted(members.states.items())
            )
            under_way = moves.all_moves(connection)
            return MovesInfo(nodes, tuple(_info(move, known.get(move.tablet, 0)) for move in under_way))

        return self._ledger.read("read the moves of replicas", work)

    def drain(self, node: str, *, undo: bool = False) -> None:
        """Have all replicas of a node go to other nodes, or no longer.

        Raises NotFound; Refused where the other nodes are too few, or while other moves are under way.
        """

        def work(connection: Connection, now_ms: int) -> None:
            if not undo:
                self._check_drain(connection, node)
            if not node_rows.set_draining(connection, node, not undo):
                raise NotFound(f"storage node {node} has never sent a heartbeat")

        self._mastership.write(f"drain storage node {node}", type(None), work)

    def rebalance(self, *, plan_only: bool = False, request_id: str | None = None) -> tuple[MoveInfo, ...]:
        """Begin the moves after which the bytes of nodes are even, and return them; none where they are.

        Raises Refused while moves are under way.
        """
        members = self._ledger.read("read the storage nodes", self._mover.members)
        sizes = self._mover.sizes(members.alive)

        def planned(connection: Connection) -> tuple[PlannedMove, ...]:
            under_way = moves.all_moves(connection)
            if under_way and not plan_only:
                raise Refused(
                    "replicas cannot be rebalanced now",
                    expected="no move under way",
                    found=f"{len(under_way)}, such as {_text(under_way[0])}",
                    action="wait until `rtolap storage moves` shows none",
                )
            return plan_rebalance(read_layout(connection, members, under_way, sizes), MOVES_MAX)

        def work(connection: Connection, now_ms: int) -> tuple[MoveInfo, ...]:
            wanted = planned(connection)
            self._mover.insert(connection, wanted)
            return tuple(_info(move, sizes.get(move.tablet, 0)) for move in wanted)

        if plan_only:
            found = self._ledger.read("plan moves of replicas", planned)
            return tuple(_info(move, sizes.get(move.tablet, 0)) for move in found)
        key = None if request_id is None else f"rebalance {request_id}"
        return self._mastership.write("rebalance replicas", tuple[MoveInfo, ...], work, key=key)

    def _check_drain(self, connection: Connection, node: str) -> None:
        members = self._mover.members(connection)
        for move in moves.all_moves(connection):
            if move.reason is MoveReason.REBALANCE or (
                move.reason is MoveReason.DRAIN and node not in (move.old_node, move.node)
            ):
                raise Refused(
                    f"storage node {node} cannot be drained now",
                    expected="no other drain and no rebalancing under way",
                    found=_text(move),
                    action="wait until `rtolap storage moves` shows none",
                )
        tablets = Counter(
            replica.tablet for replica in partition_rows.all_replicas(connection) if replica.role != "leaving"
        )
        kept = {
            replica.tablet
            for replica in partition_rows.all_replicas(connection)
            if replica.node == node and replica.role != "leaving"
        }
        needed = max((tablets[tablet] for tablet in kept), default=1)
        others = [name for name, state in members.states.items() if state is NodeState.OPEN and name != node]
        if len(others) < needed:
            raise Refused(
                f"storage node {node} cannot be drained",
                expected=f"{needed} other nodes that take replicas: its tablets have so many",
                found=f"{len(others)}: {', '.join(sorted(others)) or 'none'}",
                action="start another storage node first",
            )


def _info(move: PlannedMove | ReplicaMove, size: int) -> MoveInfo:
    partition = move.tablet.partition
    return MoveInfo(
        db=partition.db,
        table=partition.table,
        partition=partition.name,
        bucket=move.tablet.bucket,
        old_node=move.old_node,
        node=move.node,
        reason=move.reason.value,
        state=move.state.value if isinstance(move, ReplicaMove) else "planned",
        bytes=size,
    )


def _text(move: ReplicaMove) -> str:
    return f"{move.tablet} from {move.old_node or '-'} to {move.node} ({move.reason})"
