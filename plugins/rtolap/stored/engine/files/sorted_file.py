"""A file of sorted rows, open: mapped into memory, read by block. FORMAT.md has the bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from rtolap.base.decoding import decode_json
from rtolap.base.errors import Corrupted
from rtolap.base.files import checksum_of, read_from_disk
from rtolap.columnar.chunks import single_chunk
from rtolap.stored.engine.disk import RESTORE
from rtolap.stored.engine.files import bloom
from rtolap.stored.engine.files.writer import FORMAT_VERSION, MAGIC, TAIL, Footer
from rtolap.stored.engine.files.zones import Zones
from rtolap.stored.engine.rows.keys import Hashes, Longs, equal_rows, rows_below

T = TypeVar("T", bound=np.generic)
_BLOCKS_AT_ONCE = 16  # in memory, of those that rows are taken from


class Matches(NamedTuple):
    """Rows with equal keys: `theirs` are places in the requested keys, `mine` rows of the file."""

    theirs: Longs
    mine: Longs


class RowReader:
    """Slices of some columns of one file, in the requested order."""

    def __init__(self, data: pa.Buffer, footer: Footer, columns: Sequence[str]) -> None:
        self._columns, self._footer = list(columns), footer
        places = sorted(footer.columns.index(name) for name in self._columns)
        options = pa.ipc.IpcReadOptions(included_fields=places, use_threads=False)
        self._reader = pa.ipc.open_file(pa.BufferReader(data), options=options)

    def slice(self, start: int, stop: int) -> pa.Table:
        """Return rows `[start, stop)`, as far as there are."""
        size = self._footer.block_rows
        start, stop = max(0, start), min(stop, self._footer.rows)
        if stop <= start:
            return self._reader.schema.empty_table().select(self._columns)
        first = start // size
        batches = [self._reader.get_batch(block) for block in range(first, -(-stop // size))]
        whole = pa.Table.from_batches(batches, self._reader.schema)
        return whole.slice(start - first * size, stop - start).select(self._columns)


class SortedFile:
    """A sorted file. It may be deleted while it is read: the map keeps the bytes."""

    def __init__(self, path: Path, *, verify: bool = True) -> None:
        """Open the file; `verify` reads every byte. Raises Corrupted."""
        self.path = path
        with self._opened() as descriptor:
            self.footer = self._read_footer(descriptor)
            if verify:
                self._verify(descriptor)
            self._bytes: pa.Buffer = pa.memory_map(str(path), "r").read_buffer()
        try:
            self._sparse = self._stream("sparse").combine_chunks()
            zones = self._stream("zones").combine_chunks()
        except pa.ArrowException as error:
            raise self._damaged("an index", "an Arrow stream", str(error)) from error
        self.zones = Zones(zones, self._rows_by_block())
        self._bloom: bloom.Words = self._array("bloom", np.dtype(np.uint64))
        self.hashes: Hashes = self._array("hashes", np.dtype(np.uint64))
        self._hash_rows: NDArray[np.uint32] = self._array("hash_rows", np.dtype(np.uint32))

    @property
    def size_bytes(self) -> int:
        return len(self._bytes)

    @property
    def rows(self) -> int:
        return self.footer.rows

    @property
    def blocks(self) -> int:
        return -(-self.footer.rows // self.footer.block_rows)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.footer.columns

    def reader(self, columns: Sequence[str]) -> RowReader:
        """Return a reader of many slices of the same file columns, at least one; not for several threads at
        once."""
        return RowReader(self._section("rows"), self.footer, columns)

    def slice(self, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        return self.reader(columns).slice(start, stop)

    def sparse_keys(self) -> list[pa.Array]:
        """Return the first key of every block."""
        return [column.slice(0, self.blocks) for column in self._sparse_columns()]

    def rows_below(self, key: Sequence[pa.Scalar], *, inclusive: bool = False) -> int:
        """Return the number of rows with a smaller (or an equal) key."""
        blocks = rows_below(self.sparse_keys(), key, inclusive=inclusive) if self.rows else 0
        if blocks == 0:
            return 0
        start = (blocks - 1) * self.footer.block_rows
        table = self.slice(start, start + self.footer.block_rows, self.footer.keys)
        keys = [single_chunk(table.column(name)) for name in self.footer.keys]
        return start + rows_below(keys, key, inclusive=inclusive)

    def last_key(self) -> list[pa.Scalar]:
        """Return the last key of a file that has rows."""
        return [column[-1] for column in self._sparse_columns()]

    def may_contain(self, wanted: Hashes) -> NDArray[np.bool_]:
        """Ask the bloom filter over keys."""
        if not self.rows:
            return np.zeros(len(wanted), np.bool_)
        return bloom.may_contain(self._bloom, wanted)

    def find(self, wanted: Hashes, keys: Sequence[pa.Array]) -> Matches:
        """Return the rows with these keys, of a unique table.

        Hashes find them, the keys themselves decide.
        """
        candidates = np.flatnonzero(self.may_contain(wanted))
        low = np.searchsorted(self.hashes, wanted[candidates], "left")
        counts = np.searchsorted(self.hashes, wanted[candidates], "right") - low
        other_rows = np.repeat(candidates, counts)
        places = np.repeat(low, counts) + _within(counts)
        own_rows = self._hash_rows[places].astype(np.int64)
        if not len(own_rows):
            return Matches(other_rows, own_rows)
        found_keys = self.read_rows(own_rows, self.footer.keys)
        same = equal_rows(
            [single_chunk(found_keys.column(name)) for name in self.footer.keys],
            [column.take(pa.array(other_rows)) for column in keys],
        )
        return Matches(other_rows[same], own_rows[same])

    def read_rows(self, rows: Longs, columns: Sequence[str]) -> pa.Table:
        """Return some rows, in the requested order; only their blocks are read, not too many at once."""
        reader = self.reader(columns)
        if not len(rows):
            return reader.slice(0, 0)
        ascending = bool((rows[1:] >= rows[:-1]).all())
        order = None if ascending else np.argsort(rows, kind="stable")
        ordered = rows if order is None else rows[order]
        groups = ordered // (self.footer.block_rows * _BLOCKS_AT_ONCE)
        cuts = np.flatnonzero(groups[1:] != groups[:-1]) + 1
        taken = pa.concat_tables([self._take(reader, some) for some in np.split(ordered, cuts)])
        if order is None:
            return taken.combine_chunks()
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return taken.combine_chunks().take(pa.array(back))

    def _take(self, reader: RowReader, rows: Longs) -> pa.Table:
        size = self.footer.block_rows
        blocks, places = np.unique(rows // size, return_inverse=True)
        parts = [reader.slice(block * size, (block + 1) * size) for block in blocks.tolist()]
        # Only the last block is shorter, so blocks put together keep their stride.
        return pa.concat_tables(parts).combine_chunks().take(pa.array(places * size + rows % size))

    def _sparse_columns(self) -> list[pa.Array]:
        return [single_chunk(column) for column in self._sparse.columns]

    def _rows_by_block(self) -> Longs:
        rows = np.full(self.blocks, self.footer.block_rows, np.int64)
        if len(rows):
            rows[-1] = self.rows - (self.blocks - 1) * self.footer.block_rows
        return rows

    def _section(self, name: str) -> pa.Buffer:
        section = self.footer.sections[name]
        skipped = 64 if name == "rows" else section.padding
        return self._bytes.slice(section.start + skipped, section.length - skipped)

    def _stream(self, name: str) -> pa.Table:
        return pa.ipc.open_stream(self._section(name)).read_all()

    def _array(self, name: str, kind: np.dtype[T]) -> NDArray[T]:
        if name not in self.footer.sections:
            return np.zeros(0, kind)
        return np.frombuffer(self._section(name), kind)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the file to read it by calls: unlike the map, they have an error where the disk has one."""
        try:
            with read_from_disk(self.path, action=RESTORE), self.path.open("rb", buffering=0) as file:
                yield file.fileno()
        except FileNotFoundError as error:
            raise Corrupted(
                f"file {self.path} is gone", expected="a file that the log names", action=RESTORE
            ) from error

    def _read_footer(self, descriptor: int) -> Footer:
        size = os.fstat(descriptor).st_size
        if size < TAIL.size:
            raise self._damaged("length", "a footer", f"{size} bytes")
        length, version, digest, magic = TAIL.unpack(os.pread(descriptor, TAIL.size, size - TAIL.size))
        if (magic, version) != (MAGIC, FORMAT_VERSION):
            raise self._damaged("magic and version", (MAGIC, FORMAT_VERSION), (magic, version))
        start = size - TAIL.size - length
        data = os.pread(descriptor, length, start) if start >= 0 else b""
        if start < 0 or xxhash.xxh3_64_intdigest(data) != digest:
            raise self._damaged("checksum of the footer", f"{digest:016x}", "another")
        try:
            footer = decode_json(data, Footer)
        except msgspec.MsgspecError as error:
            raise self._damaged("footer", "Footer", str(error)) from error
        if sum(section.length for section in footer.sections.values()) != start:
            raise self._damaged("length", f"sections of {start} bytes", "another")
        return footer

    def verify(self) -> None:
        """Read every byte again, and compare the checksums. Raises Corrupted."""
        with self._opened() as descriptor:
            self._read_footer(descriptor)
            self._verify(descriptor)

    def _verify(self, descriptor: int) -> None:
        for name, section in self.footer.sections.items():
            checksum = checksum_of(descriptor, section.start, section.length).intdigest()
            if checksum != section.xxh3:
                raise self._damaged(f"checksum of {name}", f"{section.xxh3:016x}", f"{checksum:016x}")

    def _damaged(self, part: str, expected: object, found: object) -> Corrupted:
        return Corrupted(
            f"file {self.path}: wrong {part}",
            expected=expected,
            found=found,
            action=RESTORE,
        )


def _within(counts: Longs) -> Longs:
    """Return 0 … count - 1 for each count, one after the other."""
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
