"""Work that falls due, in one round. A new master has nothing else to do: it finds in the ledger what the one
before has left, finishes what is committed and aborts what has timed out.
"""

from __future__ import annotations

from rtolap.stored.frontend.mastership import Mastership
from rtolap.stored.frontend.transactions.labels import LabelPolicy
from rtolap.stored.frontend.transactions.publishing import Publisher
from rtolap.stored.frontend.transactions.requests import TransactionManager
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore import table_changes
from rtolap.stored.metastore import transactions as rows
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.records import Transaction

# Who sends a change again does so within minutes; a script that was stopped over night may come a day later.
CHANGES_KEPT_MS = 48 * 3_600_000


class Upkeep:
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
        """All of it once; False where somebody else is master."""
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
        """Delete old answers to changes of tables; their number, in bounded steps."""

        def work(connection: Connection) -> int:
            return table_changes.forget(connection, self._mastership.fence(connection) - CHANGES_KEPT_MS)

        return self._ledger.write("forget the answers to old changes", int, work)

    def abort_overdue(self) -> int:
        """Abort what is past its deadline; the number of transactions."""

        def late(connection: Connection) -> tuple[Transaction, ...]:
            return rows.overdue(connection, self._ledger.now_ms(connection))

        overdue = self._ledger.read("read what has timed out", late)
        return sum(self._manager.abort_overdue(each.db, each.txn_id) for each in overdue)

    def forget_labels(self) -> int:
        """Delete finished transactions whose labels need not be kept; their number, in bounded steps."""

        def work(connection: Connection) -> int:
            now_ms = self._mastership.fence(connection)
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

        return self._ledger.write("forget labels", int, work)
