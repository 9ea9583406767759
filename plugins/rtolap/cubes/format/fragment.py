"""Fragments: what a receiver has flushed to its disk. FORMAT.md has the bytes.

A fragment is immutable, opened by memory map, and may be deleted while it is read: the map keeps the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from rtolap.base.errors import Corrupted, DefinitionError, NotFound
from rtolap.base.files import fsync_dir, write_atomic, write_synced
from rtolap.columnar.filter import mask
from rtolap.columnar.groups import single_chunk
from rtolap.columnar.schema import physical_schema
from rtolap.cubes.format.index import Entry, InvertedIndex, build
from rtolap.cubes.format.ranges import ColumnRange, can_match, column_range
from rtolap.model.cube import ROWS, Schema
from rtolap.model.predicate import Predicate, columns_of

SUFFIX = ".fragment"
ARROW_SUFFIX = ".arrow"
FORMAT_VERSION = 1
_MAGIC = b"RTOLAPF1"
_FIXED = struct.Struct("<8sII")
_DIGEST = struct.Struct("<Q")


class FragmentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The header. `bytes` counts both files as far as data goes; `ranges` holds every dimension."""

    name: str
    rows: int
    events: int
    bytes: int
    ranges: dict[str, ColumnRange]
    index: dict[str, list[Entry]]
    arrow_bytes: int
    arrow_xxh3: str
    index_bytes: int
    index_xxh3: str


class Selection(NamedTuple):
    """Rows kept; how many were looked at and how many ranges and index spared."""

    table: pa.Table
    rows_scanned: int
    rows_pruned: int


class Fragment:
    """An open fragment: `info`, and `table` in local form, backed by the mapped file."""

    def __init__(self, info: FragmentInfo, table: pa.Table, index: bytes) -> None:
        self.info = info
        self.table = table
        self._types = {
            field.name: field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            for field in table.schema
        }
        self._index = InvertedIndex(
            info.index, self._types, lambda offset, length: index[offset : offset + length]
        )

    def can_match(self, predicate: Predicate | None) -> bool:
        return can_match(self.info.ranges, self._types, predicate)

    def select(self, predicate: Predicate | None, columns: Sequence[str] | None = None) -> Selection:
        """The rows that the predicate keeps, with these columns alone (None: all)."""
        rows = self.table.num_rows
        wanted = self.table if columns is None else self.table.select(list(columns))
        if predicate is None:
            return Selection(wanted, rows, 0)
        if not self.can_match(predicate):
            return Selection(wanted.schema.empty_table(), 0, rows)
        judged = self.table.select(sorted(columns_of(predicate)) or self.table.column_names)
        candidates = self._index.candidates(predicate)
        if candidates is None or len(candidates) == rows:
            return Selection(wanted.filter(mask(judged, predicate)), rows, 0)
        some = pa.array(np.frombuffer(candidates.to_array(), np.uint32))
        kept = mask(judged.take(some), predicate)
        places = some if pc.all(kept, min_count=0).as_py() else some.filter(kept)
        return Selection(wanted.take(places), len(some), rows - len(some))


def write_fragment(folder: Path, name: str, table: pa.Table, schema: Schema) -> FragmentInfo:
    """Write a local table with all physical columns; durable when it returns.

    1. write and sync `<name>.arrow`       crash: garbage, removed at start-up
    2. write_atomic `<name>.fragment`      crash: garbage as above; afterwards the fragment exists
    """
    expected = physical_schema(schema, plain=False)
    if not table.schema.equals(expected):
        raise DefinitionError(
            f"fragment {name} has other columns", expected=str(expected), found=str(table.schema)
        )
    columns = {column: single_chunk(table.column(column)) for column in table.column_names}
    whole = pa.record_batch(list(columns.values()), schema=expected)
    digest, arrow_bytes = _write_arrow(folder / (name + ARROW_SUFFIX), whole)
    dimensions = {column: columns[column] for column in schema.cube.all_dimensions}
    index = build(dimensions)
    info = FragmentInfo(
        name=name,
        rows=whole.num_rows,
        events=pc.sum(columns[ROWS]).as_py() or 0,
        bytes=arrow_bytes + len(index.data),
        ranges={column: column_range(values) for column, values in dimensions.items()},
        index=index.directory,
        arrow_bytes=arrow_bytes,
        arrow_xxh3=digest,
        index_bytes=len(index.data),
        index_xxh3=xxhash.xxh3_64_hexdigest(index.data),
    )
    header = msgspec.json.encode(info)
    head = _FIXED.pack(_MAGIC, FORMAT_VERSION, len(header)) + header
    write_atomic(folder / (name + SUFFIX), head + _DIGEST.pack(xxhash.xxh3_64_intdigest(head)) + index.data)
    return info


def open_fragment(path: Path, *, verify: bool) -> Fragment:
    """`path` is the `.fragment` file. `verify` reads the Arrow bytes too. NotFound, Corrupted."""
    info, index = _read_head(path)
    arrow_path = path.with_suffix(ARROW_SUFFIX)
    try:
        mapped = pa.memory_map(str(arrow_path), "r")
    except FileNotFoundError as error:
        raise Corrupted(f"fragment {path} has lost its data", expected=str(arrow_path)) from error
    if mapped.size() != info.arrow_bytes:
        raise _damaged(arrow_path, "length", info.arrow_bytes, mapped.size())
    if verify:
        digest = xxhash.xxh3_64_hexdigest(mapped.read_buffer())
        if digest != info.arrow_xxh3:
            raise _damaged(arrow_path, "checksum", info.arrow_xxh3, digest)
    try:
        table = pa.ipc.open_file(mapped).read_all()
    except (pa.ArrowException, OSError) as error:
        raise _damaged(arrow_path, "structure", "an Arrow file", str(error)) from error
    if table.num_rows != info.rows:
        raise _damaged(arrow_path, "rows", info.rows, table.num_rows)
    return Fragment(info, table, index)


def fragment_paths(folder: Path) -> list[Path]:
    """The `.fragment` files of a folder, by name."""
    return sorted(folder.glob("*" + SUFFIX)) if folder.is_dir() else []


def delete_fragment(folder: Path, name: str) -> None:
    """Remove both files, the one that makes it exist first; harmless when they are gone."""
    for suffix in (SUFFIX, ARROW_SUFFIX):
        (folder / (name + suffix)).unlink(missing_ok=True)
    fsync_dir(folder)


def _write_arrow(path: Path, batch: pa.RecordBatch) -> tuple[str, int]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = sink.getvalue()
    write_synced(path, memoryview(data))
    return xxhash.xxh3_64_hexdigest(data), data.size


def _read_head(path: Path) -> tuple[FragmentInfo, bytes]:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"no fragment {path}") from error
    if len(data) < _FIXED.size + _DIGEST.size:
        raise _damaged(path, "length", "a header", f"{len(data)} bytes")
    magic, version, length = _FIXED.unpack_from(data)
    if magic != _MAGIC or version != FORMAT_VERSION:
        raise _damaged(path, "magic and version", (_MAGIC, FORMAT_VERSION), (magic, version))
    end = _FIXED.size + length
    if len(data) < end + _DIGEST.size:
        raise _damaged(path, "length", f"at least {end + _DIGEST.size} bytes", f"{len(data)} bytes")
    (digest,) = _DIGEST.unpack_from(data, end)
    if digest != xxhash.xxh3_64_intdigest(data[:end]):
        raise _damaged(path, "checksum of the header", f"{digest:016x}", "another")
    try:
        info = msgspec.json.decode(data[_FIXED.size : end], type=FragmentInfo)
    except msgspec.MsgspecError as error:
        raise _damaged(path, "header", "FragmentInfo", str(error)) from error
    index = data[end + _DIGEST.size :]
    if len(index) != info.index_bytes or xxhash.xxh3_64_hexdigest(index) != info.index_xxh3:
        raise _damaged(path, "checksum of the index", info.index_xxh3, f"another, over {len(index)} bytes")
    return info, index


def _damaged(path: Path, what: str, expected: object, found: object) -> Corrupted:
    return Corrupted(
        f"fragment {path}: wrong {what}",
        expected=expected,
        found=found,
        action="stop the receiver, move the cube's folder away and start it: it replays from Kafka",
    )
