"""A partition as a request gives it, and the one that the table would make there itself. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from rtolap.base.errors import DefinitionError, PartitionNotFound, Refused
from rtolap.model.stored.partitions import PartitionRange, partition_of
from rtolap.model.stored.table import StoredTable
from rtolap.protocols.stored_tables.messages import AddPartition

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def asked_partition(
    table: StoredTable, existing: Iterable[PartitionRange], asked: AddPartition
) -> PartitionRange:
    """Raises DefinitionError where the table has no partitions, or none with these bounds and this name;
    Refused for one without a lower bound where none ends below it."""
    policy = table.partitions
    if policy is None:
        raise _unpartitioned(table, f"partition {asked.name} cannot be added")
    start_ms = asked.start_ms
    if start_ms is None:
        start_ms = max((part.end_ms for part in existing if part.end_ms < asked.end_ms), default=None)
    if start_ms is None:
        raise Refused(
            f"partition {asked.name} of {table.qualified_name} has no lower bound",
            expected='a partition that ends before it, or both bounds: VALUES [("…"), ("…"))',
        )
    there = partition_of(start_ms, policy.unit)
    if (there.start_ms, there.end_ms) != (start_ms, asked.end_ms):
        raise DefinitionError(
            f"partition {asked.name} of {table.qualified_name} is not one {policy.unit}",
            expected=f"such as {_text(there.start_ms)} to {_text(there.end_ms)}",
            found=f"{_text(start_ms)} to {_text(asked.end_ms)}",
        )
    if there.name != asked.name:
        raise DefinitionError(
            f"partition {asked.name} of {table.qualified_name} has another name than its time says",
            expected=there.name,
            found=asked.name,
        )
    return there


def named_partition(table: StoredTable, existing: Iterable[PartitionRange], name: str) -> PartitionRange:
    """Raises NotFound, and DefinitionError where the table has no partitions."""
    if table.partitions is None:
        raise _unpartitioned(table, f"partition {name} cannot be dropped")
    for part in existing:
        if part.name == name:
            return part
    raise PartitionNotFound(f"no partition {name} in {table.qualified_name}")


def _unpartitioned(table: StoredTable, what: str) -> DefinitionError:
    return DefinitionError(
        what, expected="a table that is partitioned", found=f"{table.qualified_name}, which is not"
    )


def _text(instant_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=instant_ms)).isoformat(" ")[:19]
