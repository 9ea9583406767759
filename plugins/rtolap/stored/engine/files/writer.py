"""Writes one file of sorted rows, block after block, in memory bounded by a block and 12 bytes a row."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import pyarrow as pa
import xxhash

from rtolap.stored.engine.disk import Disk
from rtolap.stored.engine.files import bloom
from rtolap.stored.engine.files.zones import ZoneRows
from rtolap.stored.engine.rows.keys import Hashes, hashes
from rtolap.stored.engine.rows.texts import plain_texts

MAGIC = b"RTOLAPT1"
FORMAT_VERSION = 1
ALIGNMENT = 64
BLOCK_ROWS = 16_384
TAIL = struct.Struct("<IIQ8s")
Compression = Literal["lz4", "zstd"]


class Section(msgspec.Struct, frozen=True):
    """`length` counts the padding before it, from the end of the section before: every byte is in one."""

    start: int
    length: int
    padding: int
    xxh3: int


class Footer(msgspec.Struct, frozen=True, kw_only=True):
    rows: int
    block_rows: int
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    sections: dict[str, Section]


class _Sink:
    """The file object that pyarrow writes to: counts, hashes, passes on."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._file = disk.create(path)
        self._digest = xxhash.xxh3_64()
        self._start = self.position = 0
        self._padding = 0
        self.closed = False

    def write(self, data: bytes | memoryview) -> int:
        self._digest.update(data)
        self._file.write(data)
        written = memoryview(data).nbytes
        self.position += written
        return written

    def tell(self) -> int:
        return self.position

    def flush(self) -> None:
        """Write out what is pending."""

    def pad(self) -> None:
        self._padding = -self.position % ALIGNMENT
        self.write(bytes(self._padding))

    def section(self) -> Section:
        """End a section, and begin the next."""
        length = self.position - self._start
        ended = Section(self._start, length, self._padding, self._digest.intdigest())
        self._start, self._padding, self._digest = self.position, 0, xxhash.xxh3_64()
        return ended

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._file.close()


class FileWriter:
    """A writer of one file: `append` sorted columns, then `finish`, or `close` to give up. Raises OSError."""

    def __init__(
        self,
        disk: Disk,
        path: Path,
        columns: pa.Schema,
        keys: tuple[str, ...],
        *,
        with_hashes: bool,
        compression: Compression | None = None,
        block_rows: int = BLOCK_ROWS,
    ) -> None:
        self._columns, self._keys, self._with_hashes = columns, keys, with_hashes
        self._block_rows = block_rows
        self.rows = 0
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._zones = ZoneRows(columns, keys)
        self._sparse: list[pa.Table] = []
        self._hashes: list[Hashes] = []
        self._last: pa.RecordBatch | None = None
        self._sink = _Sink(disk, path)
        self._sink.write(MAGIC.ljust(ALIGNMENT, b"\0"))
        options = pa.ipc.IpcWriteOptions(compression=compression)
        self._ipc = pa.ipc.new_file(self._sink, columns, options=options)

    def append(self, table: pa.Table) -> None:
        """Append rows. Columns of text may come as sorted dictionaries (`rows.texts`), of one table all the
        same; the file has them plain."""
        self._waiting.append(table.select(self._columns.names))
        self._waiting_rows += table.num_rows
        if self._waiting_rows >= self._block_rows:
            self._write_blocks(self._waiting_rows - self._waiting_rows % self._block_rows)

    def finish(self) -> Footer:
        """Make everything durable but the name."""
        self._write_blocks(self._waiting_rows)
        self._ipc.close()
        sections = {"rows": self._sink.section()}
        keys = pa.schema([self._columns.field(name) for name in self._keys])
        last = [] if self._last is None else [pa.Table.from_batches([self._last])]
        self._add(sections, "sparse", _stream(pa.concat_tables([keys.empty_table(), *self._sparse, *last])))
        self._add(sections, "zones", _stream(self._zones.table()))
        row_hashes = np.concatenate(self._hashes) if self._hashes else np.zeros(0, np.uint64)
        if self._keys:
            self._add(sections, "bloom", bloom.build(row_hashes).tobytes())
        if self._with_hashes:
            order = np.argsort(row_hashes, kind="stable")
            self._add(sections, "hashes", row_hashes[order].tobytes())
            self._add(sections, "hash_rows", order.astype(np.uint32).tobytes())
        footer = Footer(
            rows=self.rows,
            block_rows=self._block_rows,
            keys=self._keys,
            columns=tuple(self._columns.names),
            sections=sections,
        )
        data = msgspec.json.encode(footer)
        self._sink.write(data + TAIL.pack(len(data), FORMAT_VERSION, xxhash.xxh3_64_intdigest(data), MAGIC))
        self._sink.sync()
        self._sink.close()
        return footer

    def close(self) -> None:
        """Give the file up. It is harmless after `finish`."""
        self._sink.close()

    def _add(self, sections: dict[str, Section], name: str, data: bytes | memoryview) -> None:
        self._sink.pad()
        self._sink.write(data)
        sections[name] = self._sink.section()

    def _write_blocks(self, rows: int) -> None:
        if not rows:
            return
        whole = self._waiting[0] if len(self._waiting) == 1 else pa.concat_tables(self._waiting)
        rest = whole.num_rows - rows
        self._waiting, self._waiting_rows = [whole.slice(rows)] if rest else [], rest
        whole = whole.slice(0, rows).combine_chunks()
        for start in range(0, rows, self._block_rows):
            for given in whole.slice(start, self._block_rows).to_batches():
                self._zones.add_block(given)
                block = pa.RecordBatch.from_arrays(
                    [plain_texts(column) for column in given.columns], schema=self._columns
                )
                self._ipc.write_batch(block)
                if self._keys:
                    keys = block.select(self._keys)
                    self._hashes.append(hashes(keys.columns))
                    self._sparse.append(pa.Table.from_batches([keys.slice(0, 1)]))
        self._last = block.select(self._keys).slice(block.num_rows - 1)
        self.rows += rows


def _stream(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())
