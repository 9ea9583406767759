"""A stored table as loads see it, read from the ledger at one moment."""

from __future__ import annotations

import msgspec

from rtolap.base.errors import Refused
from rtolap.model.stored.partitions import PartitionRange
from rtolap.model.stored.schema import DefinedTable
from rtolap.protocols.stored_tables.messages import TableInfo
from rtolap.stored.metastore.records import Replica


class TableEntry(DefinedTable, frozen=True):
    """All that a load needs to know of a table, read at one moment. `partitions` in the order of time."""

    partitions: tuple[PartitionRange, ...]
    replicas: tuple[Replica, ...]

    def with_partitions_of(self, later: TableEntry) -> TableEntry:
        """Return this entry as it was read, columns included, with the partitions and replicas of `later`.

        Raises Refused if `later` is another table of the same name: rows that were routed for this table do
        not belong there.
        """
        if later.table_id != self.table_id:
            raise Refused(
                f"table {self.definition.qualified_name} was recreated while rows for it waited",
                action="send them again",
            )
        return msgspec.structs.replace(self, partitions=later.partitions, replicas=later.replicas)

    @property
    def info(self) -> TableInfo:
        return table_info(self, self.partitions)


def table_info(table: DefinedTable, parts: tuple[PartitionRange, ...]) -> TableInfo:
    return TableInfo(table.table_id, table.definition, table.schema, table.created_at_ms, parts)
