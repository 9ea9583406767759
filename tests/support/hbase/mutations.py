"""What is written to a row, as a client puts it into a call.

Columns are `family:qualifier`. Without a timestamp, the region server takes its clock.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from tests.support.hbase.client_pb2 import MutationProto, NameBytesPair

_LONG = struct.Struct(">q")
Types = MutationProto.MutationType
DeleteTypes = MutationProto.DeleteType
Value = MutationProto.ColumnValue.QualifierValue


def put(
    row: bytes,
    cells: Mapping[str, bytes],
    *,
    timestamp_ms: int | None = None,
    ttl_ms: int | None = None,
    tags: bytes | None = None,
    skip_wal: bool = False,
) -> MutationProto:
    """Return a put. `tags` are as they lie in a cell, uint16 length, type, bytes, and again; every cell has
    them."""
    mutation = MutationProto(row=row, mutate_type=Types.PUT)
    for column, value in cells.items():
        qualifier_value = _of(mutation, column, Value(value=value, tags=tags))
        if timestamp_ms is not None:
            qualifier_value.timestamp = timestamp_ms
    if timestamp_ms is not None:
        mutation.timestamp = timestamp_ms
    if ttl_ms is not None:
        mutation.attribute.append(NameBytesPair(name="_ttl", value=_LONG.pack(ttl_ms)))
    if skip_wal:
        mutation.durability = MutationProto.SKIP_WAL
    return mutation


def increment(row: bytes, column: str, amount: int) -> MutationProto:
    """Return an increment of a cell that holds a Bytes long."""
    mutation = MutationProto(row=row, mutate_type=Types.INCREMENT)
    _of(mutation, column, Value(value=_LONG.pack(amount)))
    return mutation


def append(row: bytes, column: str, value: bytes) -> MutationProto:
    mutation = MutationProto(row=row, mutate_type=Types.APPEND)
    _of(mutation, column, Value(value=value))
    return mutation


def delete_row(row: bytes, timestamp_ms: int | None = None) -> MutationProto:
    """Return a delete of a row. Deletes without a timestamp take the region server's clock."""
    mutation = MutationProto(row=row, mutate_type=Types.DELETE)
    if timestamp_ms is not None:
        mutation.timestamp = timestamp_ms
    return mutation


def delete_family(row: bytes, family: str, timestamp_ms: int | None = None) -> MutationProto:
    return _delete(row, f"{family}:", DeleteTypes.DELETE_FAMILY, timestamp_ms)


def delete_family_version(row: bytes, family: str, timestamp_ms: int) -> MutationProto:
    return _delete(row, f"{family}:", DeleteTypes.DELETE_FAMILY_VERSION, timestamp_ms)


def delete_column(row: bytes, column: str, timestamp_ms: int | None = None) -> MutationProto:
    """Return all its versions up to the timestamp."""
    return _delete(row, column, DeleteTypes.DELETE_MULTIPLE_VERSIONS, timestamp_ms)


def delete_version(row: bytes, column: str, timestamp_ms: int | None = None) -> MutationProto:
    """Return a delete of this version, or of the latest."""
    return _delete(row, column, DeleteTypes.DELETE_ONE_VERSION, timestamp_ms)


def _delete(
    row: bytes, column: str, kind: MutationProto.DeleteType, timestamp_ms: int | None = None
) -> MutationProto:
    mutation = MutationProto(row=row, mutate_type=Types.DELETE)
    value = _of(mutation, column, Value(delete_type=kind))
    if timestamp_ms is not None:
        value.timestamp = timestamp_ms
    return mutation


def _of(mutation: MutationProto, column: str, value: Value) -> Value:
    family, _, qualifier = column.partition(":")
    value.qualifier = qualifier.encode()
    for existing in mutation.column_value:
        if existing.family == family.encode():
            existing.qualifier_value.append(value)
            return existing.qualifier_value[-1]
    mutation.column_value.append(MutationProto.ColumnValue(family=family.encode(), qualifier_value=[value]))
    return mutation.column_value[-1].qualifier_value[0]
