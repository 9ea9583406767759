"""`Participants` and `TabletHosts` over the wire: requests to a node go to its Flight endpoint."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from rtolap.model.stored.schema import DefinedTable, StoredSchema
from rtolap.protocols.storage import messages as wire
from rtolap.stored.frontend.storage_nodes import StorageNodes
from rtolap.stored.frontend.transactions.participants import MissedVersion
from rtolap.stored.metastore import tables
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.records import Partition, Tablet


class RemoteParticipants:
    """Participants that are other processes. It is thread-safe. A table's id is read with each call: a table
    that was dropped and recreated has another id, and a node does not take old rows for the new table's."""

    def __init__(self, ledger: Ledger, nodes: StorageNodes) -> None:
        self._ledger, self._nodes = ledger, nodes

    def prepare(self, node: str, txn_id: int, tablets: Collection[Tablet]) -> frozenset[Tablet]:
        ids = self._ids(tablets)
        request = wire.Prepare(txn_id, tuple(ids.values()))
        answer = self._nodes.ask(node, lambda storage_node: storage_node.prepare(request))
        return _tablets_done(ids, answer)

    def publish(
        self, node: str, txn_id: int, versions: Mapping[Partition, int], tablets: Collection[Tablet]
    ) -> frozenset[Tablet]:
        ids = self._ids(tablets)
        wanted = tuple((tablet_id, versions[tablet.partition]) for tablet, tablet_id in ids.items())
        return _tablets_done(
            ids,
            self._nodes.ask(node, lambda storage_node: storage_node.publish(wire.Publish(txn_id, wanted))),
        )

    def catch_up(
        self, node: str, tablet: Tablet, missed: Collection[MissedVersion], sources: Collection[str]
    ) -> int:
        table = self._tables((tablet,))[tablet.partition.db, tablet.partition.table]
        alive = self._nodes.addresses()
        request = wire.CatchUp(
            _id(table.table_id, tablet),
            table.schema,
            tuple(wire.Missed(each.version, each.txn_id) for each in missed),
            tuple(alive[source] for source in sources if source in alive),
        )
        return self._nodes.ask(node, lambda storage_node: storage_node.catch_up(request)).version

    def versions(self, node: str) -> Mapping[Tablet, int]:
        return {tablet: report.version for tablet, report in self.reports(node).items()}

    def sizes(self, node: str) -> Mapping[Tablet, int]:
        """Return the bytes of each tablet that the node has of the existing tables."""
        return {tablet: report.bytes for tablet, report in self.reports(node).items()}

    def tablets(self, node: str) -> Mapping[wire.TabletId, int]:
        """Return the versions of all tablets that the node has, of tables that are gone too."""
        reports = self._nodes.ask(node, lambda storage_node: storage_node.status()).tablets
        return {report.tablet: report.version for report in reports}

    def reports(self, node: str) -> dict[Tablet, wire.TabletReport]:
        """Return the reports of the tablets that the node has of the existing tables."""
        reports = self._nodes.ask(node, lambda storage_node: storage_node.status()).tablets

        def work(connection: Connection) -> dict[Tablet, wire.TabletReport]:
            names = {(report.tablet.db, report.tablet.table) for report in reports}
            tables_by_name = {name: tables.find(connection, *name) for name in names}
            return {
                Tablet(Partition(kept.db, kept.table, kept.partition, kept.incarnation), kept.bucket): report
                for report in reports
                for kept in (report.tablet,)
                if (table := tables_by_name[kept.db, kept.table]) is not None
                and table.table_id == kept.table_id
            }

        return self._ledger.read("read the tables that a node keeps", work)

    def abort(self, node: str, txn_id: int) -> None:
        self._nodes.ask(node, lambda storage_node: storage_node.abort(wire.Abort(txn_id)))

    def _ids(self, tablets: Iterable[Tablet]) -> dict[Tablet, wire.TabletId]:
        wanted = sorted(tablets)
        table_rows = self._tables(wanted)
        return {
            tablet: _id(table_rows[tablet.partition.db, tablet.partition.table].table_id, tablet)
            for tablet in wanted
        }

    def _tables(self, tablets: Iterable[Tablet]) -> dict[tuple[str, str], DefinedTable]:
        names = {(tablet.partition.db, tablet.partition.table) for tablet in tablets}

        def work(connection: Connection) -> dict[tuple[str, str], DefinedTable]:
            return {(db, name): tables.get(connection, db, name) for db, name in names}

        return self._ledger.read("read the ids of tables", work)


class RemoteTabletHosts:
    """The `TabletHosts` that are other processes."""

    def __init__(self, nodes: StorageNodes) -> None:
        self._nodes = nodes

    def create(
        self, node: str, table_id: int, partition: Partition, buckets: Collection[int], schema: StoredSchema
    ) -> None:
        ids = tuple(_id(table_id, Tablet(partition, bucket)) for bucket in sorted(buckets))
        self._nodes.ask(node, lambda storage_node: storage_node.create(wire.CreateTablets(ids, schema)))

    def drop(self, node: str, table_id: int, partition: Partition, buckets: Collection[int]) -> None:
        ids = tuple(_id(table_id, Tablet(partition, bucket)) for bucket in sorted(buckets))
        self._nodes.ask(node, lambda storage_node: storage_node.drop(wire.DropTablets(ids)))

    def change_schema(self, node: str, table_id: int, db: str, table: str, schema: StoredSchema) -> None:
        request = wire.ChangeSchema(table_id, db, table, schema)
        self._nodes.ask(node, lambda storage_node: storage_node.change_schema(request))


def _id(table_id: int, tablet: Tablet) -> wire.TabletId:
    partition = tablet.partition
    names = (partition.db, partition.table, partition.name)
    return wire.TabletId(table_id, *names, tablet.bucket, partition.incarnation)


def _tablets_done(ids: Mapping[Tablet, wire.TabletId], answer: wire.TabletsDone) -> frozenset[Tablet]:
    done_ids = set(answer.tablets)
    return frozenset(tablet for tablet, tablet_id in ids.items() if tablet_id in done_ids)
