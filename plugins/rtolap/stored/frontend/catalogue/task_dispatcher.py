"""Pending tasks sent to the nodes: tablets to make, to drop, or a schema to take.

A task is completed when the node has done it. A node that does not answer gets it again in a later round.

A request and the upkeep send at the same time, each the tasks that it has read some time ago. So one task is
sent at a time, and only while it is still pending: a partition that was dropped and recreated has the same
name and the same table, and a drop that came late would take the new one.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Sequence
from threading import Lock

from rtolap.base.errors import NotLeader, RtolapError, Unavailable
from rtolap.model.stored.schema import StoredSchema
from rtolap.stored.frontend.election import Mastership
from rtolap.stored.frontend.transactions.participants import TabletHosts
from rtolap.stored.metastore import pending_tablet_tasks as tasks
from rtolap.stored.metastore import tables as rows
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.records import PendingTabletTask, Replica, Tablet
from rtolap.stored.stream_load.quorum import shortfall

log = logging.getLogger(__name__)


class TaskDispatcher:
    """The dispatcher of tasks to storage nodes. It is thread-safe. Raises NotLeader where another front end
    is master."""

    def __init__(self, ledger: Ledger, mastership: Mastership, hosts: TabletHosts) -> None:
        self._ledger = ledger
        self._mastership = mastership
        self._hosts = hosts
        self._one_at_a_time = Lock()

    def of_table(self, table_id: int) -> int:
        """Send the pending tasks of one table; return how many were completed."""
        return self._tell(
            self._ledger.read(
                "read what nodes are owed", lambda connection: tasks.of_table(connection, table_id)
            )
        )

    def everything(self) -> int:
        """Send all pending tasks; return how many were completed."""
        return self._tell(self._ledger.read("read what nodes are owed", tasks.all_tasks))

    def _tell(self, owed: Sequence[PendingTabletTask]) -> int:
        silent: set[str] = set()
        completed = 0
        for task in owed:
            if task.node in silent:
                continue
            try:
                completed += self._tell_one(task)
            except NotLeader:
                raise
            except RtolapError as error:
                if isinstance(error, Unavailable):
                    silent.add(task.node)
                log.warning("node %s gets the task of %s.%s later: %s", task.node, task.db, task.tbl, error)
        return completed

    def _tell_one(self, task: PendingTabletTask) -> bool:
        """Send one task, with the present schema, whatever it was when the task was made. False: it is
        pending no more.
        """
        with self._one_at_a_time:
            if not self._ledger.read(
                "read what a node is owed", lambda transaction: tasks.stands(transaction, task)
            ):
                return False
            schema = None if task.kind == "drop" else self._schema(task)
            self._ask(task, schema)

            def work(connection: Connection, now_ms: int) -> None:
                # columns may have changed again since they were read: then this task stands for that too
                if task.kind == "drop" or _schema_of(connection, task) in (None, schema):
                    tasks.complete(connection, task)

            self._mastership.write("note which tasks a node has done", type(None), work)
        return True

    def _ask(self, task: PendingTabletTask, schema: StoredSchema | None) -> None:
        if task.kind == "drop":
            self._hosts.drop(task.node, task.table_id, task.partition, task.buckets)
        elif schema is not None and task.kind == "create":
            self._hosts.create(task.node, task.table_id, task.partition, task.buckets, schema)
        elif schema is not None:
            self._hosts.change_schema(task.node, task.table_id, task.db, task.tbl, schema)

    def _schema(self, task: PendingTabletTask) -> StoredSchema | None:
        return self._ledger.read("read a table", lambda connection: _schema_of(connection, task))


def _schema_of(connection: Connection, task: PendingTabletTask) -> StoredSchema | None:
    """Return the table's schema; None if the table is gone, or another one has its name."""
    row = rows.find(connection, task.db, task.tbl)
    return None if row is None or row.table_id != task.table_id else row.schema


def without_majority(replicas: Collection[Replica], owed: Collection[PendingTabletTask]) -> bool:
    """Return True if some tablet has less than a majority of replicas without a pending task to create it.
    Pure.
    """
    parts = {task.part for task in owed if task.kind == "create"}
    requested = [replica for replica in replicas if replica.tablet.partition.name in parts]
    return not on_majority(requested, owed, {replica.node for replica in requested})


def on_majority(
    replicas: Collection[Replica], owed: Collection[PendingTabletTask], living: Collection[str]
) -> bool:
    """Return True if each of these tablets has a majority of its replicas on nodes of `living` without a
    pending task to create it. Pure.
    """
    to_make = {(task.node, task.part) for task in owed if task.kind == "create"}
    done_by_node: dict[str, set[Tablet]] = defaultdict(set)
    for replica in replicas:
        if replica.node in living and (replica.node, replica.tablet.partition.name) not in to_make:
            done_by_node[replica.node].add(replica.tablet)
    return shortfall(replicas, done_by_node) is None
