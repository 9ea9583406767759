"""Parquet, ORC and Arrow streams → source columns, as their files type them.

Parquet and ORC are read from their end, so they are spooled to a file without a name, which is gone with its
process. Batches of rows come out one after another; like packed bodies, none may grow absurdly.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet

from rtolap.base.errors import Corrupted, DefinitionError, Refused
from rtolap.bodies.batches import Longs, Refusals, Source
from rtolap.bodies.options import Format
from rtolap.bodies.settings import BodySettings
from rtolap.format.groups import single_chunk

_ROWS_AT_ONCE = 65_536
Batches = Callable[[Collection[str]], Iterator[pa.RecordBatch]]


class FileBody:
    """`schema`: of the file. `read(names)`: its rows, only those columns; once."""

    def __init__(
        self, schema: pa.Schema, batches: Batches, size_bytes: Callable[[], int], settings: BodySettings
    ):
        names = [name.lower() for name in schema.names]
        if len(set(names)) != len(names):
            raise DefinitionError("the body names a column twice", found=", ".join(schema.names))
        self.schema = schema
        self._batches, self._size_bytes, self._settings = batches, size_bytes, settings

    def read(self, names: Collection[str]) -> Iterator[Source]:
        """Raises Corrupted for damaged files, Refused for what unpacks to too much."""
        rows = given = 0
        with _damaged("the body"):
            for whole in self._batches(names):
                for start in range(0, whole.num_rows, _ROWS_AT_ONCE):
                    batch = whole.slice(start, _ROWS_AT_ONCE)
                    given += batch.get_total_buffer_size() if start == 0 else 0
                    self._check(given)
                    yield self._source(batch, rows)
                    rows += batch.num_rows

    def _source(self, batch: pa.RecordBatch, rows: int) -> Source:
        def texts(places: Longs) -> list[str]:
            found = batch.take(pa.array(places)).to_pylist()
            return [json.dumps(row, ensure_ascii=False, default=str) for row in found]

        columns = {name: single_chunk(batch.column(name)) for name in batch.schema.names}
        numbers = np.arange(rows + 1, rows + batch.num_rows + 1)
        refused = Refusals(self._settings.rejected_rows_max)
        return Source(columns, numbers, texts, refused, batch.num_rows)

    def _check(self, given: int) -> None:
        limit = max(self._settings.ratio_free_bytes, self._settings.ratio_max * self._size_bytes())
        if given > limit:
            raise Refused("a body unpacks to too much", expected=f"at most {limit} bytes", found=given)


@contextmanager
def open_file(chunks: Iterator[bytes], layout: Format, settings: BodySettings) -> Iterator[FileBody]:
    """Raises Corrupted for what is no such file, Refused for one that is too large to spool."""
    if layout == "arrow":
        stream = _Stream(chunks, settings.record_bytes_max)
        with _damaged("the body"), pa.ipc.open_stream(pa.PythonFile(stream, mode="r")) as reader:
            yield FileBody(reader.schema, lambda names: _arrow(reader, names), lambda: stream.taken, settings)
        return
    with tempfile.TemporaryFile(prefix="rtolap-load-") as spool:
        size = _spool(chunks, spool, settings.spool_bytes_max)
        source = pa.PythonFile(spool, mode="r")
        if layout == "parquet":
            with _damaged("the body"):
                parquet = pa.parquet.ParquetFile(source, pre_buffer=False, buffer_size=1 << 20)
            yield FileBody(
                parquet.schema_arrow, lambda names: _parquet(parquet, names), lambda: size, settings
            )
        else:
            with _damaged("the body"):
                orc = pa.orc.ORCFile(source)
            yield FileBody(orc.schema, lambda names: _orc(orc, names), lambda: size, settings)


def _arrow(reader: pa.RecordBatchReader, names: Collection[str]) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        yield batch.select(list(names))


def _parquet(file: pa.parquet.ParquetFile, names: Collection[str]) -> Iterator[pa.RecordBatch]:
    return iter(file.iter_batches(_ROWS_AT_ONCE, columns=list(names), use_threads=False))


def _orc(file: pa.orc.ORCFile, names: Collection[str]) -> Iterator[pa.RecordBatch]:
    for stripe in range(file.nstripes):
        yield file.read_stripe(stripe, columns=list(names))


def _spool(chunks: Iterator[bytes], spool: IO[bytes], bytes_max: int) -> int:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > bytes_max:
            raise Refused("a body is too large for its format", expected=f"at most {bytes_max} bytes")
        spool.write(chunk)
    spool.seek(0)
    return size


@contextmanager
def _damaged(what: str) -> Iterator[None]:
    """Arrow's errors in our tree. What `chunks` raises is no Arrow error and passes."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Corrupted(f"{what} is not what its format says, or is cut short", found=text) from error


class _Stream(io.RawIOBase):
    """The chunks as a file. One message may not be longer than `message_bytes_max`."""

    def __init__(self, chunks: Iterator[bytes], message_bytes_max: int) -> None:
        self._chunks, self._bytes_max = chunks, message_bytes_max
        self._held = bytearray()
        self.taken = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size > self._bytes_max:
            raise Refused(
                "a record batch is too long", expected=f"at most {self._bytes_max} bytes", found=size
            )
        while size < 0 or len(self._held) < size:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            self.taken += len(chunk)
            self._held += chunk
            if len(self._held) > self._bytes_max + len(chunk):
                raise Refused("a record batch is too long", expected=f"at most {self._bytes_max} bytes")
        count = len(self._held) if size < 0 else size
        found = bytes(self._held[:count])
        del self._held[:count]
        return found
