"""The seam towards the storage nodes: requests of a table's creation, change and end to each of them.

A node is known by its name. Every call may be repeated, come late, or come twice; table ids only grow, so
that a node knows which of two tables of one name is the later. All calls raise Unavailable when no answer
came.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from rtolap.model.stored.schema import StoredSchema
from rtolap.stored.metastore.records import Partition


class TabletHosts(Protocol):
    def create(
        self, node: str, table_id: int, partition: Partition, buckets: Collection[int], schema: StoredSchema
    ) -> None:
        """It keeps these tablets, empty at version 0. One that it has of this table stays as it is; one of an
        earlier table is dropped first; one of a later table makes the call harmless."""
        ...

    def drop(self, node: str, table_id: int, partition: Partition, buckets: Collection[int]) -> None:
        """It keeps these tablets no more. Those of a later table, and those that are gone, stay so."""
        ...

    def change_schema(self, node: str, table_id: int, db: str, table: str, schema: StoredSchema) -> None:
        """All its tablets of the table have this schema, or a later one."""
        ...
