"""A snapshot as one file, so that whatever is a function of a snapshot works on a recorded fleet too.

The file is a zip archive, its members uncompressed and each with the archive's own checksum:

    snapshot.json       format, version, cluster, time, quotas, what is missing, and `digest`
    brokers.arrow       )
    log_dirs.arrow      )  a table each, as an Arrow IPC file with zstd buffers, its columns named as in
    topics.arrow        )  `model`; partitions have `replica_counts` in place of `first_replicas`
    partitions.arrow    )
    replicas.arrow      )

`digest` is SHA-256 over everything that a snapshot says; plans name the snapshot they were made of by it.
Equal snapshots give equal files. Loading reads no code: a damaged file is an error, never an effect.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from rtolap.fleet.file_format import FileFormat
from rtolap.fleet.snapshot.model import (
    Brokers,
    FleetSnapshot,
    LogDirs,
    MissingFact,
    Partitions,
    Quota,
    Replicas,
    Topics,
)

FORMAT = FileFormat("rtolap fleet snapshot", 1, "snapshot")

_HEADER = "snapshot.json"
_TEXT = "text"
_COUNTS = "replica_counts"
_TABLES: dict[str, tuple[type, dict[str, str]]] = {
    "brokers": (
        Brokers,
        {"ids": "int32", "hosts": _TEXT, "ports": "int32", "racks": _TEXT, "states": "int8"},
    ),
    "log_dirs": (
        LogDirs,
        {
            "brokers": "int32",
            "paths": _TEXT,
            "total_bytes": "int64",
            "usable_bytes": "int64",
            "offline": "bool",
            "cordoned": "bool",
        },
    ),
    "topics": (Topics, {"names": _TEXT, "min_in_sync": "int32", "internal": "bool"}),
    "partitions": (
        Partitions,
        {
            "topics": "int32",
            "numbers": "int32",
            "leaders": "int32",
            _COUNTS: "int64",
            "bytes_in_per_s": "float64",
            "bytes_out_per_s": "float64",
        },
    ),
    "replicas": (
        Replicas,
        {
            "partitions": "int32",
            "brokers": "int32",
            "log_dirs": "int32",
            "size_bytes": "int64",
            "lag": "int64",
            "in_sync": "bool",
            "states": "int8",
            "future_log_dirs": "int32",
            "future_bytes": "int64",
        },
    ),
}


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    """The content of snapshot.json. The version comes first, so that it alone identifies a newer file."""

    format: str
    version: int
    cluster_id: str
    taken_at_ms: int
    controller: int
    quotas: tuple[Quota, ...]
    missing: tuple[MissingFact, ...]
    digest: str


def save(snapshot: FleetSnapshot, path: Path) -> None:
    """Save a snapshot. Raises Corrupted where it contradicts itself, RtolapError where no file can be
    written."""
    FORMAT.write(path, to_bytes(snapshot))


def load(path: Path) -> FleetSnapshot:
    """Load a snapshot. Raises NotFound, Corrupted for a file that is none or is damaged, SchemaTooNew for a
    later version."""
    return from_bytes(FORMAT.read(path), str(path))


def digest_of(snapshot: FleetSnapshot) -> str:
    """Return the SHA-256, in hexadecimal, of all that the snapshot says, whatever made it."""
    found = hashlib.sha256()
    values = (snapshot.cluster_id, snapshot.taken_at_ms, snapshot.controller)
    found.update(msgspec.json.encode((*values, snapshot.quotas, snapshot.missing)))
    for name, (_, columns) in _TABLES.items():
        for column, kind in columns.items():
            found.update(f"{name}.{column}:".encode())
            stored = _stored(snapshot, name, column)
            if kind == _TEXT:
                found.update(msgspec.json.encode(stored))
            else:
                little = np.dtype(kind).newbyteorder("<")
                found.update(np.ascontiguousarray(stored, little).view(np.uint8).data)
    return found.hexdigest()


def to_bytes(snapshot: FleetSnapshot) -> bytes:
    """Return a snapshot's bytes. Raises Corrupted where it contradicts itself."""
    snapshot.check()
    header = _Header(
        FORMAT.name,
        FORMAT.version,
        snapshot.cluster_id,
        snapshot.taken_at_ms,
        snapshot.controller,
        snapshot.quotas,
        snapshot.missing,
        digest_of(snapshot),
    )
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_member(_HEADER), msgspec.json.format(msgspec.json.encode(header), indent=1))
        for name, (_, columns) in _TABLES.items():
            table = pa.table(
                {
                    column: pa.array(_stored(snapshot, name, column), _arrow_type(kind))
                    for column, kind in columns.items()
                }
            )
            body = pa.BufferOutputStream()
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            with pa.ipc.new_file(body, table.schema, options=options) as writer:
                writer.write_table(table)
            archive.writestr(_member(f"{name}.arrow"), body.getvalue().to_pybytes())
    return whole.getvalue()


def from_bytes(data: bytes, name: str) -> FleetSnapshot:
    """Return the snapshot in these bytes. `name` is the file's, for messages. Raises as `load`."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {member: archive.read(member) for member in archive.namelist()}
    except (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError, RuntimeError) as error:
        FORMAT.damaged(name, str(error), error)
    if _HEADER not in members:
        FORMAT.damaged(name, f"no {_HEADER}")
    header = FORMAT.decode(members[_HEADER], _Header, name)
    tables = {table: _read_table(members.get(f"{table}.arrow"), table, name) for table in _TABLES}
    counts = tables["partitions"].pop(_COUNTS)
    if (counts < 0).any():
        FORMAT.damaged(name, "partitions with fewer than no replicas")
    tables["partitions"]["first_replicas"] = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    snapshot = FleetSnapshot(
        header.cluster_id,
        header.taken_at_ms,
        header.controller,
        **{table: made(**tables[table]) for table, (made, _) in _TABLES.items()},
        quotas=header.quotas,
        missing=header.missing,
    )
    snapshot.check()
    if digest_of(snapshot) != header.digest:
        FORMAT.damaged(name, "its content does not have the digest that it states")
    return snapshot


def _stored(snapshot: FleetSnapshot, table: str, column: str) -> Any:
    """Return the column as it stands in the file."""
    if column == _COUNTS:
        return np.diff(snapshot.partitions.first_replicas)
    return getattr(getattr(snapshot, table), column)


def _arrow_type(kind: str) -> pa.DataType:
    return pa.string() if kind == _TEXT else pa.from_numpy_dtype(np.dtype(kind))


def _member(name: str) -> zipfile.ZipInfo:
    """Return a member without the time of day, so that equal snapshots give equal files."""
    return zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))


def _read_table(data: bytes | None, table: str, name: str) -> dict[str, Any]:
    if data is None:
        FORMAT.damaged(name, f"no {table}.arrow")
    try:
        with pa.ipc.open_file(pa.py_buffer(data)) as reader:
            read = reader.read_all()
        read.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        FORMAT.damaged(name, f"{table}.arrow: {error}", error)
    columns = _TABLES[table][1]
    expected = pa.schema([(column, _arrow_type(kind)) for column, kind in columns.items()])
    if not read.schema.equals(expected):
        FORMAT.damaged(name, f"{table}.arrow has other columns")
    values: dict[str, Any] = {}
    for column, kind in columns.items():
        stored = read.column(column).combine_chunks()
        if stored.null_count and (table, column) != ("brokers", "racks"):
            FORMAT.damaged(name, f"{table}.{column} has gaps")
        values[column] = tuple(stored.to_pylist()) if kind == _TEXT else stored.to_numpy(zero_copy_only=False)
    return values
