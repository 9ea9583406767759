"""The first steps of a commit: its partitions are noted, then every replica says what it has prepared.

They are noted first, so that none of them can be dropped or recreated between the votes and the commit: what
the nodes have voted on is what gets a version.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from rtolap.base.errors import NotFound
from rtolap.stored.frontend.election import Mastership
from rtolap.stored.frontend.transactions.participants import NodeCalls, Participants
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore import transactions as rows
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.records import Partition, Tablet, Transaction, TransactionState
from rtolap.stored.stream_load.quorum import Shortfall, shortfall

# `map`, or that of a thread pool: the calls to the nodes do not depend on each other.
ForEach = Callable[[Callable[[str], frozenset[Tablet]], Iterable[str]], Iterable[frozenset[Tablet]]]


class Preparation:
    def __init__(
        self, ledger: Ledger, mastership: Mastership, participants: Participants, for_each: ForEach
    ) -> None:
        self._ledger = ledger
        self._mastership = mastership
        self._participants = participants
        self._for_each = for_each

    def shortfall(self, transaction: Transaction, partitions: Collection[Partition]) -> Shortfall | None:
        """Ask every replica: a tablet that no majority of its replicas has prepared, or None.

        Raises NotFound for a partition that is not there.
        """
        self._note(transaction, partitions)
        txn_id = transaction.txn_id
        replicas = self._ledger.read(
            "read which nodes store the partitions",
            lambda connection: partition_rows.replicas(connection, sorted(rows.touched(connection, txn_id))),
        )
        asking = NodeCalls()
        tablets: dict[str, set[Tablet]] = {}
        for replica in replicas:
            tablets.setdefault(replica.node, set()).add(replica.tablet)

        def ask(node: str) -> frozenset[Tablet]:
            wanted = frozenset(tablets[node])
            prepared = asking.ask(node, "prepare", lambda: self._participants.prepare(node, txn_id, wanted))
            return prepared or frozenset()  # a node that does not answer holds nothing; the majority decides

        nodes = sorted(tablets)
        return shortfall(replicas, dict(zip(nodes, self._for_each(ask, nodes), strict=True)))

    def _note(self, transaction: Transaction, partitions: Collection[Partition]) -> None:
        """Record the partitions. From now on they can be dropped only once the transaction is over."""

        def work(connection: Connection, now_ms: int) -> None:
            present = rows.find(connection, transaction.db, transaction.txn_id)
            if present is None or present.state is not TransactionState.PREPARE:
                return  # it has gone on meanwhile: the next step says what it finds
            for partition in sorted(partitions):
                if partition_rows.versions(connection, partition) is None:
                    raise NotFound(f"partition {partition} is not there")
            rows.touch(connection, transaction.txn_id, partitions)

        self._mastership.write(f"note the partitions of transaction {transaction.txn_id}", type(None), work)
