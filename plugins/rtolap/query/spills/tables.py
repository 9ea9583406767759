"""Rows on the disk: one table as an Arrow stream, or the pieces of several parts.

Both lie in a file without a name (`Spills.new_file`) and are read as mapped memory, which the system takes
back when it needs room.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from rtolap.query.spills.folder import Spills


class SpilledTable:
    """A table on the disk. Rows are written until it is sealed, and then read by anybody.

    The file goes with the object and with what was mapped of it. Only one thread may write.

    Attributes:
        schema: the columns of the table.
        num_rows: the rows that were written.
        size_bytes: the size of the file; complete once it is sealed.
    """

    def __init__(self, spills: Spills, schema: pa.Schema) -> None:
        """Make an empty table. Raises OverBudget; as all writing does, TooLittleDisk and Unavailable."""
        self.schema = schema
        self.num_rows = 0
        self._file = _File(spills)
        self._is_sealed = False
        self._file.write(_schema_message(schema))

    @property
    def descriptor(self) -> int:
        return self._file.descriptor

    @property
    def size_bytes(self) -> int:
        return self._file.size_bytes

    def beside(self, schema: pa.Schema) -> SpilledTable:
        """Return an empty table with other columns, at the same place. Raises OverBudget."""
        return SpilledTable(self._file.spills, schema)

    def write(self, table: pa.Table) -> None:
        assert not self._is_sealed, "nobody has read it yet"
        for batch in table.to_batches():
            if batch.num_rows:
                self._file.write(batch.serialize())
                self.num_rows += batch.num_rows

    def seal(self) -> None:
        """End the stream. Nothing is written afterwards."""
        if not self._is_sealed:
            self._file.write(_END_OF_STREAM)
            self._is_sealed = True

    def mapped(self) -> pa.Table:
        """Return the table where it lies in the file, without a copy."""
        assert self._is_sealed, "a stream has an end"
        return pa.ipc.open_stream(self._file.mapped()).read_all()

    def close(self) -> None:
        """Close the file. Nothing else is called afterwards; what was mapped stays."""
        self._file.close()


class _Piece(NamedTuple):
    start: int
    size: int
    bytes: int


class SpilledParts:
    """Rows on the disk, divided into parts that are read one by one. One thread uses it.

    Attributes:
        written_bytes: the bytes that were written.
    """

    def __init__(self, spills: Spills, schema: pa.Schema) -> None:
        self._schema = schema
        self._file = _File(spills)
        self._pieces: dict[int, list[_Piece]] = defaultdict(list)

    @property
    def written_bytes(self) -> int:
        return self._file.size_bytes

    def write(self, part: int, table: pa.Table) -> None:
        """Add rows to a part. Raises TooLittleDisk and Unavailable."""
        for batch in table.combine_chunks().to_batches():
            start, data = self._file.size_bytes, batch.serialize()
            self._file.write(data)
            self._pieces[part].append(_Piece(start, data.size, batch.nbytes))

    def read(self, bytes_max: int) -> Iterator[list[pa.Table]]:
        """Yield the rows of each part; of a part beyond `bytes_max`, in several lists."""
        mapped = self._file.mapped()
        for part in sorted(self._pieces):
            tables: list[pa.Table] = []
            size_bytes = 0
            for piece in self._pieces[part]:
                if tables and size_bytes + piece.bytes > bytes_max:
                    yield tables
                    tables, size_bytes = [], 0
                batch = pa.ipc.read_record_batch(mapped.slice(piece.start, piece.size), self._schema)
                tables.append(pa.Table.from_batches([batch], self._schema))
                size_bytes += piece.bytes
            yield tables

    def close(self) -> None:
        """Close the file. Nothing else is called afterwards."""
        self._file.close()


class _File:
    """A file that is written at its end, closed with the object."""

    def __init__(self, spills: Spills) -> None:
        self.spills = spills
        self.descriptor = spills.new_file()
        self.size_bytes = 0
        self.close = weakref.finalize(self, os.close, self.descriptor)

    def write(self, data: pa.Buffer) -> None:
        """Raises TooLittleDisk where the disk is full or too little would be free, else Unavailable."""
        left = memoryview(data)
        self.spills.check_free(len(left))
        try:
            while left:
                written = os.write(self.descriptor, left)
                self.size_bytes += written
                left = left[written:]
        except OSError as error:
            raise self.spills.failed(error) from error

    def mapped(self) -> pa.Buffer:
        if not self.size_bytes:
            return pa.py_buffer(b"")
        return pa.py_buffer(mmap.mmap(self.descriptor, self.size_bytes, prot=mmap.PROT_READ))


def _schema_message(schema: pa.Schema) -> pa.Buffer:
    return schema.serialize()


_END_OF_STREAM = pa.py_buffer(b"\xff\xff\xff\xff\x00\x00\x00\x00")
