"""The first step of a commit: every replica says what it has prepared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from rtolap.base.errors import NotFound, Unavailable
from rtolap.ledger import partitions as partition_rows
from rtolap.ledger.database import Connection, Ledger
from rtolap.ledger.records import Partition, Replica, Tablet
from rtolap.streamload.participants import Participants
from rtolap.streamload.quorum import Shortfall, shortfall

# `map`, or that of a thread pool: the calls to the nodes do not depend on each other.
ForEach = Callable[[Callable[[str], frozenset[Tablet]], Iterable[str]], Iterable[frozenset[Tablet]]]


class Preparation:
    def __init__(self, ledger: Ledger, participants: Participants, for_each: ForEach) -> None:
        self._ledger = ledger
        self._participants = participants
        self._for_each = for_each

    def shortfall(self, txn_id: int, partitions: Collection[Partition]) -> Shortfall | None:
        """Ask every replica: a tablet that no majority of its replicas has prepared, or None.

        Raises NotFound for a partition that is not there.
        """
        replicas = self._ledger.read(
            "read where partitions are kept", lambda connection: _placed(connection, partitions)
        )
        tablets: dict[str, set[Tablet]] = {}
        for replica in replicas:
            tablets.setdefault(replica.node, set()).add(replica.tablet)

        def ask(node: str) -> frozenset[Tablet]:
            try:
                return self._participants.prepare(node, txn_id, frozenset(tablets[node]))
            except Unavailable:
                return frozenset()  # a node that does not answer holds nothing; the majority decides

        nodes = sorted(tablets)
        return shortfall(replicas, dict(zip(nodes, self._for_each(ask, nodes), strict=True)))


def _placed(connection: Connection, partitions: Collection[Partition]) -> tuple[Replica, ...]:
    for partition in partitions:
        if partition_rows.versions(connection, partition) is None:
            raise NotFound(f"partition {partition} is not there")
    return partition_rows.replicas(connection, partitions)
