"""Tablets that a late call has left on a node which is not to have them are dropped there.

A copy is asked for by a call. One that arrives after its partition was dropped, or after its move was called
off, makes the tablet anew, and no pending task knows of it. Nobody reads it: a partition that is made again
under that name has another incarnation. It takes room.

Only what the ledger proves is dropped. A ledger may be another cluster's, or an old backup:

    dropped    the table gave a later id or incarnation to what has its name now, or gave the tablet's
               incarnation to a partition that is gone. It is dropped at once: neither is given twice
    unplaced   the partition lives, and neither a replica nor a move names the node, and every replica that
               the ledger names has answered that it has as much. It gets a pending task in one write that
               checks this: no move chooses a node with such a task
"""

from __future__ import annotations

import functools
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from rtolap.base.errors import NotLeader, RtolapError
from rtolap.protocols.storage.messages import TabletId
from rtolap.stored.frontend.election import Mastership
from rtolap.stored.frontend.transactions.participants import NodeCalls, TabletHosts
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore import pending_tablet_tasks as tasks
from rtolap.stored.metastore import replica_moves as moves
from rtolap.stored.metastore import tables as rows
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.records import Partition, PendingTabletTask, Tablet

log = logging.getLogger(__name__)

# node -> the version of each tablet that it has
Found = Mapping[str, Mapping[TabletId, int]]


class StrayTablets:
    """Drops strays, on the master. Raises NotLeader once another is master.

    Args:
        tablets: returns the versions of all tablets that a node has.
        living: returns the names of the living nodes, read with the given connection.
    """

    def __init__(
        self,
        ledger: Ledger,
        mastership: Mastership,
        hosts: TabletHosts,
        tablets: Callable[[str], Mapping[TabletId, int]],
        living: Callable[[Connection], Collection[str]],
    ) -> None:
        self._ledger, self._mastership = ledger, mastership
        self._hosts, self._tablets, self._living = hosts, tablets, living

    def run_once(self) -> int:
        """Drop the strays of all living nodes, or note that they are to; return their number. A node that
        fails hinders no other."""
        asking = NodeCalls()
        found: dict[str, Mapping[TabletId, int]] = {}
        # The nodes are asked first: what they have was in the ledger before it was on a node.
        for node in sorted(self._ledger.read("read the living nodes", self._living)):
            answer = asking.ask(node, "the tablets that it has", functools.partial(self._tablets, node))
            if answer is not None:
                found[node] = answer
        dropped = 0
        for node, tablets in found.items():
            gone = self._ledger.read("see which partitions are gone", functools.partial(_gone, of=tablets))
            dropped += self._drop(node, gone)
        return dropped + self._note_unplaced(found)

    def _drop(self, node: str, strays: Sequence[TabletId]) -> int:
        buckets: dict[tuple[int, Partition], list[int]] = defaultdict(list)
        for each in strays:
            buckets[each.table_id, _partition(each)].append(each.bucket)
        dropped = 0
        for (table_id, partition), numbers in buckets.items():
            try:
                self._hosts.drop(node, table_id, partition, numbers)
            except NotLeader:
                raise
            except RtolapError as error:
                log.warning("node %s keeps what is left of partition %s: %s", node, partition, error)
                continue
            log.info("node %s has dropped what was left of partition %s", node, partition)
            dropped += len(numbers)
        return dropped

    def _note_unplaced(self, found: Found) -> int:
        unplaced = functools.partial(_unplaced, found=found)
        if not self._ledger.read("see which tablets are at their places", unplaced):
            return 0

        def work(connection: Connection, now_ms: int) -> int:
            owed = unplaced(connection)
            tasks.add_tasks(connection, owed)
            for task in owed:
                log.info(
                    "node %s is to drop what it has of %s.%s/%s", task.node, task.db, task.tbl, task.part
                )
            return sum(len(task.buckets) for task in owed)

        return self._mastership.write("note which tablets nodes are to drop", int, work)


def is_gone(tablet: TabletId, table_id: int, last_incarnation: int, live: Collection[Partition]) -> bool:
    """Return True if the tablet is of a table or partition that was dropped. Pure.

    Args:
        table_id: of the table that has the name now.
        last_incarnation: the last one that this table gave.
        live: its partitions.
    """
    if tablet.table_id != table_id:
        return tablet.table_id < table_id
    return tablet.incarnation <= last_incarnation and _partition(tablet) not in live


def is_unplaced(tablet: TabletId, node: str, found: Found, replicas: Collection[str]) -> bool:
    """Return True if a tablet is on a node that is not among its `replicas`, each of which has as much.
    Pure."""
    version = found[node][tablet]
    has_as_much = [found.get(other, {}).get(tablet, -1) >= version for other in replicas]
    return node not in replicas and bool(has_as_much) and all(has_as_much)


def _gone(connection: Connection, of: Collection[TabletId]) -> tuple[TabletId, ...]:
    by_table: dict[tuple[str, str], list[TabletId]] = defaultdict(list)
    for tablet in sorted(of):
        by_table[tablet.db, tablet.table].append(tablet)
    gone: list[TabletId] = []
    for (db, name), tablets in by_table.items():
        table = rows.find(connection, db, name)
        if table is None:
            continue
        last = rows.last_incarnation(connection, table.table_id)
        live = partition_rows.of_table(connection, db, name)
        gone += [each for each in tablets if is_gone(each, table.table_id, last, live)]
    return tuple(gone)


def _unplaced(connection: Connection, found: Found) -> tuple[PendingTabletTask, ...]:
    """Return tasks to drop what is unplaced, without those that nodes have already."""
    replicas: dict[Tablet, set[str]] = defaultdict(set)
    for replica in partition_rows.all_replicas(connection):
        replicas[replica.tablet].add(replica.node)
    moving = {
        (move.tablet, node) for move in moves.all_moves(connection) for node in (move.node, move.old_node)
    }
    table_ids = {(table.db, table.name): table.table_id for table in rows.all_tables(connection)}
    pending = {(task.table_id, task.part, task.node) for task in tasks.all_tasks(connection)}
    buckets: dict[tuple[str, int, Partition], list[int]] = defaultdict(list)
    for node, tablets in found.items():
        for each in sorted(tablets):
            tablet = Tablet(_partition(each), each.bucket)
            if (
                table_ids.get((each.db, each.table)) == each.table_id
                and (tablet, node) not in moving
                and (each.table_id, each.partition, node) not in pending
                and is_unplaced(each, node, found, replicas.get(tablet, ()))
            ):
                buckets[node, each.table_id, tablet.partition].append(each.bucket)
    return tuple(
        PendingTabletTask.of(table_id, partition, node, "drop", numbers)
        for (node, table_id, partition), numbers in buckets.items()
    )


def _partition(tablet: TabletId) -> Partition:
    return Partition(tablet.db, tablet.table, tablet.partition, tablet.incarnation)
