"""Tablets of storage nodes in memory: each node carries out the requests of `TabletHosts`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from rtolap.base.errors import Unavailable
from rtolap.model.stored.schema import StoredSchema
from rtolap.stored.metastore.records import Partition, Tablet


@dataclass
class MemoryHost:
    """tablets: tablet -> (the table's id, its schema)"""

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
