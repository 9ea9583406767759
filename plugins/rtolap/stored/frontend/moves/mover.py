"""The mover: on the master, it plans moves of replicas and carries each one step further in every round.

The steps, and what a crash after each of them leaves, are those of `states`. Loads go on meanwhile: before
the switch they know nothing of the new replica, and after it their rows are sent to it as to the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import msgspec

from rtolap.base.errors import NotLeader, RtolapError
from rtolap.stored.frontend.election import Mastership
from rtolap.stored.frontend.moves.layout import Members, read_layout, read_members
from rtolap.stored.frontend.moves.plan import NodeState, PlannedMove, plan_repairs
from rtolap.stored.frontend.moves.states import MoveEvent
from rtolap.stored.frontend.moves.steps import MoveSteps
from rtolap.stored.frontend.transactions.participants import (
    MissedVersion,
    NodeCalls,
    Participants,
    TabletHosts,
)
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore import replica_moves as moves
from rtolap.stored.metastore import tables as rows
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.records import MoveReason, MoveState, ReplicaMove, Tablet

log = logging.getLogger(__name__)

# node -> the bytes of each of its tablets
Sizes = Callable[[str], Mapping[Tablet, int]]

_COPY_TRIES = 10  # in one round: loads may make versions faster than a switch is written


class MoverSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the mover.

    Attributes:
        lost_after_ms: without a heartbeat, after which a node is replaced.
        grace_ms: watched by this master before any node is lost to it.
        copies_max: tablets that are copied at once.
        moves_max: moves that are planned at once.
        replan_ms: after which the replicas are looked at again though no node has changed.
    """

    lost_after_ms: int = 30 * 60_000
    grace_ms: int = 30_000
    copies_max: int = 2
    moves_max: int = 100
    replan_ms: int = 60_000


@dataclass(frozen=True)
class _Round:
    now_ms: int
    members: Members
    moves: tuple[ReplicaMove, ...]


class Mover:
    """The mover of replicas, for one thread of the master. Raises NotLeader once another is master."""

    def __init__(
        self,
        ledger: Ledger,
        mastership: Mastership,
        participants: Participants,
        hosts: TabletHosts,
        sizes: Sizes,
        *,
        replication: int,
        settings: MoverSettings = MoverSettings(),
    ) -> None:
        self._ledger, self._mastership = ledger, mastership
        self._participants, self._hosts, self._sizes = participants, hosts, sizes
        self._replication, self._settings = replication, settings
        self._steps = MoveSteps(mastership)
        self._watched_since_ms = self._looked_ms = self._planned_ms = 0
        self._planned_for: Mapping[str, NodeState] = {}

    def run_once(self) -> int:
        """Carry every move one step further, then plan; return the number of steps and of new moves."""
        look = self._look()
        copying = 0
        done = 0
        for move in look.moves:
            try:
                if move.state is MoveState.COPYING and not self._is_called_off(move, look.members):
                    copying += 1
                    if copying <= self._settings.copies_max:
                        done += self._copy(move, look.members)
                else:
                    done += self._advance(move, look.members)
            except NotLeader:
                raise
            except RtolapError as error:
                log.warning("the move of %s to %s waits: %s", move.tablet, move.node, error)
        changed = done or look.members.states != self._planned_for
        if changed or not 0 <= look.now_ms - self._planned_ms < self._settings.replan_ms:
            done += self._plan(look)
        return done

    def members(self, connection: Connection) -> Members:
        """Return the nodes as they are now."""
        now_ms = self._ledger.now_ms(connection)
        settings = self._settings
        return read_members(
            connection, now_ms, settings.lost_after_ms, self._watched_since_ms or now_ms, settings.grace_ms
        )

    def sizes(self, nodes: Collection[str]) -> dict[Tablet, int]:
        """Return the bytes of tablets: of each the most that a node says."""
        asking = NodeCalls()
        known: dict[Tablet, int] = {}
        for node in sorted(nodes):
            sizes = asking.ask(node, "the bytes of its tablets", lambda node=node: self._sizes(node))  # type: ignore[misc]
            for tablet, size in (sizes or {}).items():
                known[tablet] = max(size, known.get(tablet, 0))
        return known

    def insert(self, connection: Connection, planned: Collection[PlannedMove]) -> None:
        """Note moves (step 1) within a write of the caller's."""
        for each in planned:
            partition = each.tablet.partition
            table = rows.get(connection, partition.db, partition.table)
            move = ReplicaMove(each.tablet, table.table_id, each.old_node, each.node, each.reason)
            moves.insert(connection, move)
            log.info("%s moves from %s to %s: %s", each.tablet, each.old_node or "-", each.node, each.reason)

    def _look(self) -> _Round:
        def work(connection: Connection) -> _Round:
            now_ms = self._ledger.now_ms(connection)
            if now_ms - self._looked_ms > self._settings.grace_ms:  # it is new, or the ledger was away
                self._watched_since_ms = now_ms
            return _Round(now_ms, self.members(connection), moves.all_moves(connection))

        look = self._ledger.read("look at the storage nodes and at moves", work)
        self._looked_ms = look.now_ms
        return look

    def _is_called_off(self, move: ReplicaMove, members: Members) -> bool:
        """Return True if a move that has not switched is of no more use."""
        old = members.states.get(move.old_node)
        if members.states.get(move.node) is not NodeState.OPEN:
            return True
        if move.reason is MoveReason.LOST:
            return old is not NodeState.LOST
        if move.reason is MoveReason.DRAIN:
            return old not in (NodeState.DRAINING, NodeState.LOST)
        return False

    def _copy(self, move: ReplicaMove, members: Members) -> bool:
        """Copy (step 2), and switch once the new replica has all that is visible."""
        for _ in range(_COPY_TRIES):
            reached = self._reached(move, members)
            if reached is None:
                return False
            if self._steps.take(move, MoveEvent.COPIED, members.alive, reached):
                return True
        return False

    def _reached(self, move: ReplicaMove, members: Members) -> int | None:
        """Return the version that the new replica has; None while that is not the visible one."""
        tablet, partition = move.tablet, move.tablet.partition

        def work(connection: Connection) -> tuple[int, list[str]] | None:
            table = rows.find(connection, partition.db, partition.table)
            versions = partition_rows.versions(connection, partition)
            if table is None or table.table_id != move.table_id or versions is None:
                return None
            if not moves.stands(connection, move):
                return None
            sources = [
                replica.node
                for replica in partition_rows.replicas(connection, (partition,))
                if replica.tablet == tablet
                and replica.node in members.alive
                and replica.version >= versions.visible
            ]
            return versions.visible, sources

        wanted = self._ledger.read("read what a new replica has to have", work)
        if wanted is None:
            return None
        visible, sources = wanted
        if visible == 0:
            self._create(move)
            return 0
        newest = (MissedVersion(visible, None),)
        reached = self._participants.catch_up(move.node, tablet, newest, sources)
        return reached if reached >= visible else None

    def _create(self, move: ReplicaMove) -> None:
        partition = move.tablet.partition
        table = self._ledger.read(
            "read a table", lambda connection: rows.get(connection, partition.db, partition.table)
        )
        self._hosts.create(move.node, move.table_id, partition, (move.tablet.bucket,), table.schema)

    def _advance(self, move: ReplicaMove, members: Members) -> bool:
        if move.state is MoveState.COPYING:
            event = MoveEvent.CALLED_OFF
        elif members.states.get(move.node) is NodeState.LOST and move.old_node in members.alive:
            event = MoveEvent.NEW_NODE_LOST
        elif move.state is MoveState.SWITCHED:
            event = MoveEvent.SEEN
        else:
            event = MoveEvent.OVER
        return self._steps.take(move, event, members.alive)

    def _plan(self, look: _Round) -> int:
        settings = self._settings

        def planned(connection: Connection, sizes: Mapping[Tablet, int]) -> tuple[PlannedMove, ...]:
            layout = read_layout(connection, look.members, moves.all_moves(connection), sizes)
            room = settings.moves_max - len(layout.moving)
            return plan_repairs(layout, self._replication, max(room, 0))

        found = self._ledger.read("see which replicas are to move", lambda it: planned(it, {}))
        self._planned_ms, self._planned_for = look.now_ms, look.members.states
        if not found:
            return 0
        sizes = self.sizes(look.members.alive)

        def work(connection: Connection, now_ms: int) -> int:
            wanted = planned(connection, sizes)
            self.insert(connection, wanted)
            return len(wanted)

        return self._mastership.write("note moves of replicas", int, work)
