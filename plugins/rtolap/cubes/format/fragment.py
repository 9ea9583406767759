"""Fragments are files that a receiver has flushed to its disk. FORMAT.md has the bytes.

A fragment is immutable, opened by memory map, and may be deleted while it is read: the map keeps the bytes.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Sequence
from functools import cached_property
from io import FileIO
from mmap import MADV_DONTNEED, PROT_READ, mmap
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from pyroaring import BitMap

from rtolap.base.decoding import decode_json
from rtolap.base.errors import Corrupted, DefinitionError, NotFound
from rtolap.base.files import checksum_of, fsync_dir, read_from_disk, write_atomic
from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.filter import mask
from rtolap.columnar.mapped_file import MappedFile
from rtolap.columnar.schema import physical_schema
from rtolap.cubes.format.index import ColumnRange, Entry, InvertedIndex, build, can_match, column_range
from rtolap.model.cube import ROWS, Schema
from rtolap.model.predicate import Predicate, columns_of

log = logging.getLogger(__name__)

SUFFIX = ".fragment"
ARROW_SUFFIX = ".arrow"
FORMAT_VERSION = 1
_MAGIC = b"RTOLAPF1"
_FIXED = struct.Struct("<8sII")
_DIGEST = struct.Struct("<Q")
_ACTION = "stop the receiver, move the cube's folder away and start it: it replays from Kafka"
_PIECE_BYTES = 1 << 20  # of a checksum


class FragmentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a fragment.

    Attributes:
        bytes: size of both files, as far as data goes.
        ranges: the range of each dimension's values.
    """

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
    """Rows that a predicate selects.

    Attributes:
        rows_scanned: number of rows that were read.
        rows_pruned: number of rows that ranges and the index excluded.
    """

    table: pa.Table
    rows_scanned: int
    rows_pruned: int


class Fragment:
    """An open fragment: `info`, and `table` in local form, backed by the mapped file.

    `verify` verifies a fragment that was opened unverified. `select` calls it; other readers of `table` have
    to call it themselves.
    """

    def __init__(
        self, info: FragmentInfo, table: pa.Table, path: Path, mapped: mmap, *, verified: bool
    ) -> None:
        """Open a fragment's table. `mapped` has the Arrow file's bytes; `verified`: they have been compared
        with their checksum."""
        self.info = info
        self.table = table
        self._path = path
        self._mapped = mapped
        self._verified = verified
        self._lock = Lock()
        self._types = {
            field.name: field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            for field in table.schema
        }

    @property
    def verified(self) -> bool:
        return self._verified

    def verify(self) -> None:
        """Compare all bytes with their checksums, once: other callers wait meanwhile. Raises Corrupted, each
        time again."""
        if self._verified:
            return
        with self._lock:
            if not self._verified:
                try:
                    _check_arrow(self._path, self.info)
                    _read_index(self._path, self.info)
                except NotFound:  # deleted since: the map has the bytes, and the index is not needed
                    _check_map(self._path, self.info, self._mapped)
                self._verified = True

    def release_pages(self) -> None:
        """Let go of the pages that were read: they stay in the system's cache, as long as it has room, and
        count as the process's memory again once they are read."""
        self._mapped.madvise(MADV_DONTNEED)

    def load_index(self) -> None:
        """Read the index now, so that no statement waits for it."""
        if self._index is None:
            log.debug("fragment %s was deleted before its index was read", self.info.name)

    @cached_property
    def _index(self) -> InvertedIndex | None:
        """The index, read when a predicate first asks for it; None where the fragment has been deleted since
        it was opened, as one that was merged into another: then every row may match."""
        try:
            index = _read_index(self._path, self.info)
        except NotFound:
            return None
        return InvertedIndex(
            self.info.index, self._types, lambda offset, length: index[offset : offset + length]
        )

    def _candidates(self, predicate: Predicate) -> BitMap | None:
        return None if self._index is None else self._index.candidates(predicate)

    def can_match(self, predicate: Predicate | None) -> bool:
        return can_match(self.info.ranges, self._types, predicate)

    def rows_max(self, predicate: Predicate) -> int:
        """Return how many rows the index leaves: at least as many as the predicate keeps."""
        candidates = self._candidates(predicate)
        return self.table.num_rows if candidates is None else len(candidates)

    def select(self, predicate: Predicate | None, columns: Sequence[str] | None = None) -> Selection:
        """Return the rows that the predicate keeps, with these columns alone (None: all)."""
        rows = self.table.num_rows
        wanted = self.table if columns is None else self.table.select(list(columns))
        if not self.can_match(predicate):
            return Selection(wanted.schema.empty_table(), 0, rows)
        self.verify()
        if predicate is None:
            return Selection(wanted, rows, 0)
        judged = self.table.select(sorted(columns_of(predicate)) or self.table.column_names)
        candidates = self._candidates(predicate)
        if candidates is None or len(candidates) == rows:
            return Selection(wanted.filter(mask(judged, predicate)), rows, 0)
        some = pa.array(np.frombuffer(candidates.to_array(), np.uint32))
        matches = mask(judged.take(some), predicate)
        places = some if pc.all(matches, min_count=0).as_py() else some.filter(matches)
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
    """Open the fragment at `path`, a `.fragment` file. With `verify`, the Arrow bytes are read too. Raises
    NotFound, Corrupted."""
    info = _read_header(path)
    table, mapped = _opened(path, info)
    _read_index(path, info)
    if verify:
        _check_arrow(path, info)
    return Fragment(info, table, path, mapped, verified=True)


def open_unverified(path: Path, schema: Schema) -> Fragment:
    """Open a fragment whose bytes are verified when they are first used.

    Its cost does not depend on the fragment's size. Only names and types of the columns are read before that,
    and they are compared with the schema's.
    """
    info = _read_header(path)
    (table, mapped), expected = _opened(path, info), physical_schema(schema, plain=False)
    if not table.schema.equals(expected):
        raise _damaged(path.with_suffix(ARROW_SUFFIX), "columns", f"those of {schema.cube.name}", "others")
    return Fragment(info, table, path, mapped, verified=False)


def _opened(path: Path, info: FragmentInfo) -> tuple[pa.Table, mmap]:
    """Map the Arrow file; only what tells where its columns are is read."""
    arrow_path = path.with_suffix(ARROW_SUFFIX)
    try:
        with read_from_disk(arrow_path, action=_ACTION), arrow_path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != info.arrow_bytes or not size:
                raise _damaged(arrow_path, "length", info.arrow_bytes, size)
            mapped = mmap(file.fileno(), size, prot=PROT_READ)
            table = pa.ipc.open_file(MappedFile(mapped, file.fileno()).opened()).read_all()
    except FileNotFoundError as error:
        raise Corrupted(f"fragment {path} has lost its data", expected=str(arrow_path)) from error
    except (pa.ArrowException, OSError) as error:
        raise _damaged(arrow_path, "structure", "an Arrow file", str(error)) from error
    if table.num_rows != info.rows:
        raise _damaged(arrow_path, "rows", info.rows, table.num_rows)
    return table, mapped


def fragment_paths(folder: Path) -> list[Path]:
    """Return the `.fragment` files of a folder, by name."""
    return sorted(folder.glob("*" + SUFFIX)) if folder.is_dir() else []


def delete_fragment(folder: Path, name: str) -> None:
    """Remove both files, the one that makes it exist first; harmless when they are gone."""
    for suffix in (SUFFIX, ARROW_SUFFIX):
        (folder / (name + suffix)).unlink(missing_ok=True)
    fsync_dir(folder)


def _write_arrow(path: Path, batch: pa.RecordBatch) -> tuple[str, int]:
    """Write the file and sync it. Return the checksum of what was handed over, and its length.

    It is written column by column: as a whole it would be in memory a second time.
    """
    with open(path, "wb", buffering=0) as file:
        digested = _Digested(file)
        with pa.PythonFile(digested, mode="w") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        os.fsync(file.fileno())
    return digested.digest.hexdigest(), digested.size


class _Digested:
    """A file that is written, and its checksum. The file is closed by whoever has opened it."""

    closed = False

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self.digest = xxhash.xxh3_64()
        self.size = 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: no byte is held back."""

    def close(self) -> None:
        """Do nothing: the file is synced first."""


def _check_arrow(path: Path, info: FragmentInfo) -> None:
    """Read the Arrow file and compare its checksum. Raises Corrupted; NotFound when it was deleted."""
    arrow_path = path.with_suffix(ARROW_SUFFIX)
    try:
        with read_from_disk(arrow_path, action=_ACTION), arrow_path.open("rb", buffering=0) as file:
            digest = checksum_of(file.fileno(), 0, info.arrow_bytes)
    except FileNotFoundError as error:
        raise NotFound(f"no fragment {path}") from error
    _compare(arrow_path, info, digest.hexdigest())


def _check_map(path: Path, info: FragmentInfo, mapped: mmap) -> None:
    """Compare the checksum of a fragment that nothing but the map has, in pieces: other threads run in
    between."""
    digest, view = xxhash.xxh3_64(), memoryview(mapped)
    for start in range(0, len(view), _PIECE_BYTES):
        digest.update(view[start : start + _PIECE_BYTES])
    _compare(path.with_suffix(ARROW_SUFFIX), info, digest.hexdigest())


def _compare(arrow_path: Path, info: FragmentInfo, checksum: str) -> None:
    if checksum != info.arrow_xxh3:
        raise _damaged(arrow_path, "checksum", info.arrow_xxh3, checksum)


def _read_header(path: Path) -> FragmentInfo:
    """Return the header alone, checked, and the length of what follows it."""
    try:
        with read_from_disk(path, action=_ACTION), path.open("rb") as file:
            fixed = file.read(_FIXED.size)
            if len(fixed) < _FIXED.size:
                raise _damaged(path, "length", "a header", f"{len(fixed)} bytes")
            magic, version, length = _FIXED.unpack(fixed)
            if magic != _MAGIC or version != FORMAT_VERSION:
                raise _damaged(path, "magic and version", (_MAGIC, FORMAT_VERSION), (magic, version))
            size = path.stat().st_size
            if size < _FIXED.size + length + _DIGEST.size:
                least = _FIXED.size + length + _DIGEST.size
                raise _damaged(path, "length", f"at least {least} bytes", f"{size} bytes")
            header, stated = file.read(length), file.read(_DIGEST.size)
    except FileNotFoundError as error:
        raise NotFound(f"no fragment {path}") from error
    (digest,) = _DIGEST.unpack(stated)
    if digest != xxhash.xxh3_64_intdigest(fixed + header):
        raise _damaged(path, "checksum of the header", f"{digest:016x}", "another")
    try:
        info = decode_json(header, FragmentInfo)
    except msgspec.MsgspecError as error:
        raise _damaged(path, "header", "FragmentInfo", str(error)) from error
    index_bytes = size - _FIXED.size - length - _DIGEST.size
    if index_bytes != info.index_bytes:
        raise _damaged(path, "length of the index", info.index_bytes, index_bytes)
    return info


def _read_index(path: Path, info: FragmentInfo) -> bytes:
    try:
        with read_from_disk(path, action=_ACTION):
            data = path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"no fragment {path}") from error
    index = data[len(data) - info.index_bytes :]
    digest = xxhash.xxh3_64_hexdigest(index)
    if digest != info.index_xxh3:
        raise _damaged(path, "checksum of the index", info.index_xxh3, digest)
    return index


def _damaged(path: Path, what: str, expected: object, found: object) -> Corrupted:
    return Corrupted(
        f"fragment {path}: wrong {what}",
        expected=expected,
        found=found,
        action=_ACTION,
    )
