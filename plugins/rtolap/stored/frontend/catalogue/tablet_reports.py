"""Replicas of a table as their storage nodes report them: files, bytes, compaction.

Every endpoint answers, master or not. The nodes are asked at once; one that does not answer is named with the
reason, and the others are listed without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future

from rtolap.base.decoding import copied
from rtolap.base.errors import RtolapError
from rtolap.base.ids import CarryingPool
from rtolap.protocols.storage.messages import TabletReport
from rtolap.protocols.stored_tables.messages import TableName, TableTablets, TabletReplicaInfo
from rtolap.stored.metastore import tables as rows
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.records import Tablet

Reports = Callable[[str], Mapping[Tablet, TabletReport]]


class TabletReports:
    """`addresses`: node -> its Flight address, of those that live, read with the given connection; `reports`
    asks a node for its tablets of tables that exist."""

    def __init__(
        self,
        ledger: Ledger,
        addresses: Callable[[Connection], Mapping[str, str]],
        reports: Reports,
        pool: CarryingPool,
    ) -> None:
        self._ledger = ledger
        self._addresses = addresses
        self._reports = reports
        self._pool = pool

    def of_table(self, name: TableName) -> TableTablets:
        """Return the replicas of a table. Raises NotFound."""

        def work(connection: Connection) -> tuple[str, ...]:
            rows.get(connection, name.db, name.name)
            return tuple(sorted(self._addresses(connection)))

        nodes = self._ledger.read(f"read who has {name}", work)
        asked: dict[str, Future[Mapping[Tablet, TabletReport]]] = {
            node: self._pool.submit(self._reports, node) for node in nodes
        }
        found: list[TabletReplicaInfo] = []
        missing: dict[str, str] = {}
        for node, future in asked.items():
            try:
                reports = future.result()
            except RtolapError as error:
                missing[node] = str(error)
                continue
            found += [
                _info(node, tablet, report)
                for tablet, report in reports.items()
                if (tablet.partition.db, tablet.partition.table) == (name.db, name.name)
            ]
        ordered = sorted(found, key=lambda each: (each.partition, each.bucket, each.node))
        return TableTablets(replicas=tuple(ordered), missing=missing)


def _info(node: str, tablet: Tablet, report: TabletReport) -> TabletReplicaInfo:
    return copied(
        TabletReplicaInfo,
        report,
        partition=tablet.partition.name,
        bucket=tablet.bucket,
        node=node,
        problem=report.stopped or report.compaction_problem,
    )
