"""The keys of a call's WAL entries → columns, a row an entry."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from rtolap.base.errors import Corrupted
from rtolap.sep.hbase.replication_pb2 import UUID, ReplicateWALEntryRequest, WALKey


@dataclass(frozen=True, slots=True)
class EntryColumns:
    """A row an entry; `table` and `region` are dictionaries, `cluster_ids` lists of texts."""

    table: pa.DictionaryArray
    region: pa.DictionaryArray
    sequence_id: NDArray[np.int64]
    write_time_ms: NDArray[np.int64]
    cluster_ids: pa.ListArray
    cell_count: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sequence_id)


def decode_entries(parameter: bytes | bytearray | memoryview) -> EntryColumns:
    """`parameter` is a serialized ReplicateWALEntryRequest. Corrupted: it is not, or contradicts itself."""
    request = ReplicateWALEntryRequest()
    try:
        request.ParseFromString(bytes(parameter))
    except DecodeError as error:
        raise Corrupted(
            "the parameter of ReplicateWALEntry cannot be read",
            expected="a ReplicateWALEntryRequest",
            found=f"{len(parameter)} bytes: {error}",
        ) from error
    entries = list(request.entry)
    keys = [entry.key for entry in entries]
    cell_counts = [entry.associated_cell_count for entry in entries]
    if min(cell_counts, default=0) < 0 or any(entry.key_value_bytes for entry in entries):
        raise Corrupted(
            "a WAL entry does not say how many cells of the block are its own",
            expected="a count of at least 0, and no cells within the entry",
            action="let region servers of HBase 2.5 or newer ship to this peer",
        )
    try:
        return EntryColumns(
            _names("table", [key.table_name for key in keys]),
            _names("region", [key.encoded_region_name for key in keys]),
            np.array([key.log_sequence_number for key in keys], np.int64),
            np.array([key.write_time for key in keys], np.int64),
            _clusters(keys),
            np.array(cell_counts, np.int64),
        )
    except OverflowError as error:
        raise Corrupted(
            "the key of a WAL entry is broken", expected="a sequence id and a time below 2^63"
        ) from error


def _names(kind: str, names: Sequence[bytes]) -> pa.DictionaryArray:
    encoded = pa.array(names, pa.binary()).dictionary_encode()
    try:
        texts = encoded.dictionary.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise Corrupted(f"a WAL entry names its {kind} in bytes that are no UTF-8") from error
    if "" in texts.to_pylist():
        raise Corrupted(f"a WAL entry does not name its {kind}")
    return pa.DictionaryArray.from_arrays(encoded.indices, texts)


def _clusters(keys: Sequence[WALKey]) -> pa.ListArray:
    codes: dict[tuple[bytes, ...], int] = {}
    code_of = codes.setdefault
    chosen = [code_of(tuple(key.cluster_ids), len(codes)) for key in keys]
    lists = [[_cluster_id(serialized) for serialized in ids] for ids in codes]
    return pa.array(lists, pa.list_(pa.string())).take(pa.array(chosen, pa.int32()))


def _cluster_id(serialized: bytes) -> str:
    try:
        parsed = UUID.FromString(serialized)
    except DecodeError as error:
        raise Corrupted("the id of a cluster in a WAL entry cannot be read", expected="a UUID") from error
    return str(uuid.UUID(int=(parsed.most_sig_bits << 64) | parsed.least_sig_bits))
