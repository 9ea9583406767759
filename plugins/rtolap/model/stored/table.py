"""A stored table: typed rows that are loaded in transactions, instead of being consumed from a topic.

Three models say what happens to rows with equal keys: `duplicate` keeps all of them, `aggregate` merges them
by each value column's function, `unique` keeps the latest (with a sequence column: the one that is largest
there). A table has range *partitions* by time, and each partition hash *buckets*.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from rtolap.base.errors import NotFound
from rtolap.column_types import BINARY, ColumnType, parse_type, sum_type

TableModel = Literal["duplicate", "aggregate", "unique"]
AggregateFunction = Literal[
    "SUM", "MIN", "MAX", "REPLACE", "REPLACE_IF_NOT_NULL", "HLL_UNION", "BITMAP_UNION"
]
PartitionUnit = Literal["hour", "day", "week", "month", "year"]
SKETCH_TYPES = ("hll", "bitmap")


class StoredColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A column of a stored table.

    Attributes:
        type: one of the column types, or `hll` or `bitmap`.
        aggregate: belongs to the value columns of an aggregate table.
        default: written as in a CSV file.
    """

    name: str
    type: str
    nullable: bool = True
    aggregate: AggregateFunction | None = None
    default: str | None = None

    @property
    def column_type(self) -> ColumnType:
        """Return the type in which the column is stored and read.

        A SUM is widened for its sums; sketches are bytes.
        """
        written = self.type.strip().lower()
        if written in SKETCH_TYPES:
            return BINARY
        declared = parse_type(written)
        return sum_type(declared) if self.aggregate == "SUM" else declared

    @property
    def load_type(self) -> ColumnType:
        """Return the type in which the column is loaded."""
        return BINARY if self.type.strip().lower() in SKETCH_TYPES else parse_type(self.type)


class RangePartitions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A partition for each calendar unit (UTC) of `column`.

    Attributes:
        ahead: the number of future partitions that are created in advance.
        retention_ms: how long after its end a partition is retained; None retains it forever.
        on_demand: True if loads create the partitions that their rows need. If False, rows without a
            partition are refused.
    """

    column: str
    unit: PartitionUnit = "day"
    ahead: int = 3
    retention_ms: int | None = None
    on_demand: bool = True


class Buckets(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The distribution of rows over buckets, by a hash of `columns`.

    Without columns, the key columns count.
    """

    count: int = 1
    columns: tuple[str, ...] = ()


class StoredTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """`sequence_column` and `delete_sign` are for unique tables, where deleting is allowed by default."""

    database: str
    name: str
    columns: tuple[StoredColumn, ...]
    model: TableModel = "duplicate"
    keys: tuple[str, ...] = ()
    sequence_column: str | None = None
    delete_sign: bool | None = None
    partitions: RangePartitions | None = None
    buckets: Buckets = Buckets()

    @property
    def qualified_name(self) -> str:
        return f"{self.database}.{self.name}"

    @property
    def allows_deletes(self) -> bool:
        return self.model == "unique" and self.delete_sign is not False

    @property
    def bucket_columns(self) -> tuple[str, ...]:
        return self.buckets.columns or self.keys

    def column(self, name: str) -> StoredColumn:
        for column in self.columns:
            if column.name == name:
                return column
        raise NotFound(f"table {self.qualified_name} has no column {name}")
