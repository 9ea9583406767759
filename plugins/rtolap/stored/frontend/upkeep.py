"""Standing work of a front end, in rounds. A new master has nothing else to do: it finds in the ledger what
the one before has left, finishes what is committed and aborts what has timed out.
"""

from __future__ import annotations

import logging

from rtolap.base.errors import NotLeader, RtolapError
from rtolap.stored.frontend.catalogue.tables import Catalogue
from rtolap.stored.frontend.election import Mastership
from rtolap.stored.frontend.transactions.labels import LabelPolicy
from rtolap.stored.frontend.transactions.publishing import Publisher
from rtolap.stored.frontend.transactions.requests import TransactionManager
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore import table_changes
from rtolap.stored.metastore import transactions as rows
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.records import Transaction

log = logging.getLogger(__name__)

# Who sends a change again does so within minutes; a script that was stopped over night may come a day later.
CHANGES_KEPT_MS = 48 * 3_600_000


class Upkeep:
    """Upkeep of transactions, labels and recorded answers."""

    def __init__(
        self,
        ledger: Ledger,
        mastership: Mastership,
        manager: TransactionManager,
        publisher: Publisher,
        policy: LabelPolicy,
    ) -> None:
        self._ledger = ledger
        self._mastership = mastership
        self._manager = manager
        self._publisher = publisher
        self._policy = policy

    def run_once(self) -> bool:
        """Run all duties once. Return False if somebody else is master."""
        if not self._mastership.acquire():
            return False
        self.abort_overdue()
        self._publisher.publish_committed()
        self._publisher.catch_up()
        self._publisher.tell_aborts()
        self.forget_labels()
        self.forget_changes()
        self._ledger.forget_keys()
        return True

    def forget_changes(self) -> int:
        """Delete old answers to changes of tables, in bounded steps; return their number."""
        return self._mastership.write(
            "forget the answers to old changes",
            int,
            lambda connection, now_ms: table_changes.forget(connection, now_ms - CHANGES_KEPT_MS),
        )

    def abort_overdue(self) -> int:
        """Abort transactions that are past their deadline; return their number."""

        def late(connection: Connection) -> tuple[Transaction, ...]:
            return rows.overdue(connection, self._ledger.now_ms(connection))

        overdue = self._ledger.read("read what has timed out", late)
        return sum(self._manager.abort_overdue(each.db, each.txn_id) for each in overdue)

    def forget_labels(self) -> int:
        """Delete finished transactions whose labels may go, in bounded steps; return their number."""

        def work(connection: Connection, now_ms: int) -> int:
            forgettable = list(rows.acknowledged(connection))
            if self._policy.keep_ms is not None:
                forgettable += rows.finished_before(connection, now_ms - self._policy.keep_ms)
            if self._policy.count_max_per_database is not None:
                for db in partition_rows.databases(connection):
                    forgettable += rows.finished_beyond(connection, db, self._policy.count_max_per_database)
            ids = {transaction.txn_id for transaction in forgettable}
            if ids:
                rows.delete(connection, ids)
            return len(ids)

        return self._mastership.write("forget labels", int, work)


class PartitionUpkeep:
    """Creates partitions ahead of time and drops old ones, on the master.

    A table that fails hinders no other. A front end that is no longer master stops.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def run_once(self) -> tuple[int, int]:
        """Return (partitions made, partitions dropped) and send the nodes their pending tasks. Raises
        NotLeader.
        """
        created = dropped = 0
        for table in self._catalogue.tables():
            if table.definition.partitions is None:
                continue
            try:
                created += self._catalogue.partitions.create_ahead(table.db, table.name)
                dropped += self._catalogue.partitions.drop_old(table.db, table.name)
            except NotLeader:
                raise
            except RtolapError as error:  # tried again with the next round
                log.warning("the partitions of %s are not up to date: %s", table.qualified_name, error)
        self._catalogue.settle()
        return created, dropped
