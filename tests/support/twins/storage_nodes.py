"""Storage nodes in memory: they carry out the requests of `participants`, and are no safer than that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from rtolap.base.errors import NotFound, Refused, Unavailable
from rtolap.model.stored.schema import StoredSchema
from rtolap.stored.frontend.transactions.participants import MissedVersion
from rtolap.stored.metastore.records import Partition, Tablet

R = TypeVar("R")

Row = object


@dataclass
class MemoryNode:
    """`received` is lost when the node goes down; the rest survives it.

    versions: tablet -> (transaction, its rows) of version 1, 2, …
    """

    up: bool = True
    received: dict[int, dict[Tablet, list[Row]]] = field(default_factory=dict)
    prepared: dict[int, dict[Tablet, list[Row]]] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    versions: dict[Tablet, list[tuple[int, list[Row]]]] = field(default_factory=dict)


class MemoryNodes:
    """The twin of `Participants`. `around` may be replaced: it makes each call, and may lose, repeat or delay
    it."""

    def __init__(self, names: Collection[str]) -> None:
        self.nodes = {name: MemoryNode() for name in names}
        self.around: Callable[[Callable[[], object]], object] = lambda call: call()

    def receive(self, node: str, txn_id: int, tablet: Tablet, rows: list[Row]) -> None:
        """Receive rows of a load, which are not durable yet. Raises Unavailable, or Refused once it was
        aborted."""
        here = self._up(node)
        if txn_id in here.aborted:
            raise Refused(f"transaction {txn_id} was aborted on {node}")
        here.received.setdefault(txn_id, {}).setdefault(tablet, []).extend(rows)

    def stop(self, node: str) -> None:
        self.nodes[node].up = False
        self.nodes[node].received.clear()

    def start(self, node: str) -> None:
        self.nodes[node].up = True

    def prepare(self, node: str, txn_id: int, tablets: Collection[Tablet]) -> frozenset[Tablet]:
        def work(here: MemoryNode) -> frozenset[Tablet]:
            if txn_id in here.aborted:
                return frozenset()
            received = here.received.pop(txn_id, {})
            here.prepared.setdefault(txn_id, {}).update(received)
            return frozenset(tablets) & here.prepared[txn_id].keys()

        return self._call(node, work)

    def publish(
        self, node: str, txn_id: int, versions: Mapping[Partition, int], tablets: Collection[Tablet]
    ) -> frozenset[Tablet]:
        def work(here: MemoryNode) -> frozenset[Tablet]:
            for tablet in tablets:
                self._advance(here, tablet, MissedVersion(versions[tablet.partition], txn_id), ())
            return frozenset(
                tablet
                for tablet in tablets
                if len(here.versions.get(tablet, ())) >= versions[tablet.partition]
            )

        return self._call(node, work)

    def catch_up(
        self, node: str, tablet: Tablet, missed: Collection[MissedVersion], sources: Collection[str]
    ) -> int:
        def work(here: MemoryNode) -> int:
            self._make_room(here, tablet)
            before = range(len(here.versions.get(tablet, ())) + 1, min(missed).version)
            for version in (*(MissedVersion(lost, None) for lost in before), *missed):
                self._advance(here, tablet, version, sources)
            return len(here.versions.get(tablet, ()))

        return self._call(node, work)

    def versions(self, node: str) -> Mapping[Tablet, int]:
        return self._call(
            node, lambda here: {tablet: len(versions) for tablet, versions in here.versions.items()}
        )

    def abort(self, node: str, txn_id: int) -> None:
        def work(here: MemoryNode) -> None:
            here.received.pop(txn_id, None)
            here.prepared.pop(txn_id, None)
            here.aborted.add(txn_id)

        self._call(node, work)

    def _advance(
        self, here: MemoryNode, tablet: Tablet, missed: MissedVersion, sources: Collection[str]
    ) -> None:
        """Add the version if it is the next one and somebody has it."""
        versions = here.versions.setdefault(tablet, [])
        if len(versions) != missed.version - 1:
            return
        own = here.prepared.get(missed.txn_id, {}) if missed.txn_id is not None else {}
        if missed.txn_id is not None and tablet in own:
            versions.append((missed.txn_id, own.pop(tablet)))
            return
        for source in sources:
            other = self.nodes[source]
            other_versions = other.versions.get(tablet, [])
            if other.up and len(other_versions) >= missed.version:
                txn_id, rows = other_versions[missed.version - 1]
                versions.append((txn_id, rows))
                # what it was sent itself, and was never asked to prepare, is of no more use
                here.received.get(txn_id, {}).pop(tablet, None)
                here.prepared.get(txn_id, {}).pop(tablet, None)
                return

    def create_tablets(self, node: str, tablets: Collection[Tablet]) -> None:
        """Have the node keep these, empty; what it has of earlier incarnations goes. Harmless where it has
        them, or later ones."""

        def work(here: MemoryNode) -> None:
            for tablet in tablets:
                try:
                    self._make_room(here, tablet)
                except NotFound:
                    continue
                here.versions.setdefault(tablet, [])

        self._call(node, work)

    def drop_tablets(self, node: str, tablets: Collection[Tablet]) -> None:
        """Have the node drop these, and earlier incarnations of them."""

        def work(here: MemoryNode) -> None:
            for tablet in tablets:
                for known in self._of_name(here, tablet):
                    if known.partition.incarnation <= tablet.partition.incarnation:
                        self._drop(here, known)

        self._call(node, work)

    def _make_room(self, here: MemoryNode, tablet: Tablet) -> None:
        """Drop earlier incarnations of a tablet. Raises NotFound where a later one is here."""
        for known in self._of_name(here, tablet):
            if known.partition.incarnation > tablet.partition.incarnation:
                raise NotFound(f"tablet {tablet} is not here", found="a later one of its name")
            if known != tablet:
                self._drop(here, known)

    def _of_name(self, here: MemoryNode, tablet: Tablet) -> list[Tablet]:
        named = (tablet.partition.db, tablet.partition.table, tablet.partition.name, tablet.bucket)
        known = {*here.versions}.union(*here.prepared.values(), *here.received.values())
        return [
            each
            for each in sorted(known)
            if (each.partition.db, each.partition.table, each.partition.name, each.bucket) == named
        ]

    def _drop(self, here: MemoryNode, tablet: Tablet) -> None:
        here.versions.pop(tablet, None)
        for rows in (*here.prepared.values(), *here.received.values()):
            rows.pop(tablet, None)

    def _up(self, node: str) -> MemoryNode:
        here = self.nodes[node]
        if not here.up:
            raise Unavailable(f"node {node} is down")
        return here

    def _call(self, node: str, work: Callable[[MemoryNode], R]) -> R:
        answers: list[R] = []
        self.around(lambda: answers.append(work(self._up(node))))
        return answers[-1]


@dataclass
class MemoryHost:
    """A node as a host of tablets. tablets: tablet -> (the table's id, its schema)"""

    up: bool = True
    tablets: dict[Tablet, tuple[int, StoredSchema]] = field(default_factory=dict)


class MemoryTabletHosts:
    """A `TabletHosts`; for one thread."""

    def __init__(self, names: Collection[str]) -> None:
        self.hosts = {name: MemoryHost() for name in names}

    def create(
        self, node: str, table_id: int, partition: Partition, buckets: Collection[int], schema: StoredSchema
    ) -> None:
        here = self._up(node)
        for bucket in buckets:
            tablet = Tablet(partition, bucket)
            known = here.tablets.get(tablet)
            if known is None or known[0] < table_id:
                here.tablets[tablet] = (table_id, schema)

    def drop(self, node: str, table_id: int, partition: Partition, buckets: Collection[int]) -> None:
        here = self._up(node)
        for bucket in buckets:
            tablet = Tablet(partition, bucket)
            if tablet in here.tablets and here.tablets[tablet][0] <= table_id:
                del here.tablets[tablet]

    def change_schema(self, node: str, table_id: int, db: str, table: str, schema: StoredSchema) -> None:
        here = self._up(node)
        for tablet, (kept_id, known) in here.tablets.items():
            same = (tablet.partition.db, tablet.partition.table, kept_id) == (db, table, table_id)
            if same and known.version < schema.version:
                here.tablets[tablet] = (table_id, schema)

    def _up(self, node: str) -> MemoryHost:
        if not self.hosts[node].up:
            raise Unavailable(f"node {node} does not answer")
        return self.hosts[node]
