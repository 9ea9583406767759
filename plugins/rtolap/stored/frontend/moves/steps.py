"""The steps of a move, each one write of the ledger: the actions of `states`."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from rtolap.stored.frontend.election import Mastership
from rtolap.stored.frontend.moves.states import MoveAction, MoveEvent, transition
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore import pending_tablet_tasks as tasks
from rtolap.stored.metastore import replica_moves as moves
from rtolap.stored.metastore import transactions as transaction_rows
from rtolap.stored.metastore.database import Connection
from rtolap.stored.metastore.records import MoveState, PendingTabletTask, ReplicaMove
from rtolap.stored.stream_load.quorum import shortfall

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Facts:
    """The caller's knowledge of nodes: those that are alive, and which version the new replica has."""

    alive: Collection[str]
    reached: int


class MoveSteps:
    """The steps of moves. Raises NotLeader once another front end is master."""

    def __init__(self, mastership: Mastership) -> None:
        self._mastership = mastership
        self._actions = {
            MoveAction.JOIN: self._join,
            MoveAction.DROP_NEW: self._drop_new,
            MoveAction.NOTE_FENCE: self._note_fence,
            MoveAction.SWAP: self._swap,
            MoveAction.SETTLE: self._settle,
        }

    def take(self, move: ReplicaMove, event: MoveEvent, alive: Collection[str], reached: int = 0) -> bool:
        """Take the step of an event. Return False where its time has not come, or the move has gone on.

        `reached` is the version that the new replica is known to have."""
        after, action = transition(move.state, event)
        facts = _Facts(alive, reached)

        def work(connection: Connection, now_ms: int) -> bool:
            if not moves.stands(connection, move) or not self._actions[action](connection, move, facts):
                return False
            if after is None:
                moves.delete(connection, move.tablet)
            return True

        taken = self._mastership.write(f"{action} of the move of {move.tablet}", bool, work)
        if taken:
            log.info("the move of %s to %s: %s", move.tablet, move.node, after or f"ended ({action})")
        return taken

    def _join(self, connection: Connection, move: ReplicaMove, facts: _Facts) -> bool:
        partition = move.tablet.partition
        versions = partition_rows.versions(connection, partition)
        if versions is None or facts.reached < versions.visible:
            return False  # a load has become visible meanwhile
        partition_rows.join(connection, move.tablet, move.node, versions.visible)
        if move.old_node:
            partition_rows.set_role(connection, move.tablet, move.old_node, "leaving")
        # The table's columns may have changed during the copy, when the node was not told.
        schema = PendingTabletTask(move.table_id, partition.db, partition.table, "", move.node, "schema")
        tasks.add_tasks(connection, (schema,))
        moves.update(connection, msgspec.structs.replace(move, state=MoveState.SWITCHED))
        return True

    def _drop_new(self, connection: Connection, move: ReplicaMove, facts: _Facts) -> bool:
        self._owe_drop(connection, move, move.node)
        return True

    def _note_fence(self, connection: Connection, move: ReplicaMove, facts: _Facts) -> bool:
        newest = transaction_rows.newest(connection)
        moves.update(connection, msgspec.structs.replace(move, state=MoveState.RETIRING, fence_txn_id=newest))
        return True

    def _swap(self, connection: Connection, move: ReplicaMove, facts: _Facts) -> bool:
        """Go back to the old replica: the two change their roles, and it is as after a switch."""
        partition_rows.set_role(connection, move.tablet, move.node, "leaving")
        partition_rows.set_role(connection, move.tablet, move.old_node, "joining")
        swapped = msgspec.structs.replace(
            move, node=move.old_node, old_node=move.node, state=MoveState.SWITCHED, fence_txn_id=0
        )
        moves.update(connection, swapped)
        return True

    def _settle(self, connection: Connection, move: ReplicaMove, facts: _Facts) -> bool:
        if not self._is_over(connection, move, facts):
            return False
        if move.old_node:
            partition_rows.remove(connection, move.tablet, move.old_node)
            self._owe_drop(connection, move, move.old_node)
        partition_rows.set_role(connection, move.tablet, move.node, "")
        return True

    def _is_over(self, connection: Connection, move: ReplicaMove, facts: _Facts) -> bool:
        """Return True if nothing needs the old replica: no transaction that it may have decided runs, and
        what is visible is on a majority of the others, the new one among them unless both nodes are away.
        """
        partition = move.tablet.partition
        if transaction_rows.is_running(connection, partition, move.fence_txn_id):
            return False
        versions = partition_rows.versions(connection, partition)
        assert versions is not None  # its moves are deleted with the partition
        after = [
            msgspec.structs.replace(replica, role="")
            for replica in partition_rows.replicas(connection, (partition,))
            if replica.tablet == move.tablet and replica.role != "leaving"
        ]
        holders = {each.node: (move.tablet,) for each in after if each.version >= versions.visible}
        if shortfall(after, holders) is not None:
            return False
        is_healthy = move.node in holders and move.node in facts.alive
        return is_healthy or move.old_node not in facts.alive

    def _owe_drop(self, connection: Connection, move: ReplicaMove, node: str) -> None:
        tablet = move.tablet
        task = PendingTabletTask.of(move.table_id, tablet.partition, node, "drop", (tablet.bucket,))
        tasks.add_tasks(connection, (task,))
