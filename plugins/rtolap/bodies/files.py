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
from functools import partial
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet

from rtolap.base.errors import Corrupted, DefinitionError, Refused, Unavailable
from rtolap.bodies.batches import Longs, Refusals, Source
from rtolap.bodies.casting import shown
from rtolap.bodies.options import Format
from rtolap.bodies.settings import BodySettings
from rtolap.format.groups import single_chunk

_ROWS_AT_ONCE = 65_536
Batches = Callable[[Collection[str]], Iterator[pa.RecordBatch]]


class FileBody:
    """`schema`: of the file. `read(names)`: its rows, only those columns; once."""

    def __init__(
        self,
        schema: pa.Schema,
        batches: Batches,
        size_bytes: Callable[[], int],
        settings: BodySettings,
        stream: _Stream | None = None,
    ) -> None:
        """`size_bytes`: of the body, as far as it has come. `stream`: what `batches` reads, if chunks."""
        names = [name.lower() for name in schema.names]
        if len(set(names)) != len(names):
            raise DefinitionError("the body names a column twice", found=", ".join(schema.names))
        for field in schema:
            str(field.type)  # fails where the name of a zone is no text
            _check_decimals(field.type, field.name)
        self.schema = schema
        self._batches, self._size_bytes, self._settings = batches, size_bytes, settings
        self._stream = stream

    def read(self, names: Collection[str]) -> Iterator[Source]:
        """Raises Corrupted for damaged files, Refused for what unpacks to too much."""
        rows = given = 0
        with _damaged(self._stream):
            for whole in self._batches(names):
                for start in range(0, whole.num_rows, _ROWS_AT_ONCE):
                    batch = whole.slice(start, _ROWS_AT_ONCE)
                    given += batch.get_total_buffer_size() if start == 0 else 0
                    self._check(given)
                    batch.validate(full=True)  # places within bounds, text in UTF-8
                    yield self._source(batch, rows)
                    rows += batch.num_rows

    def _source(self, batch: pa.RecordBatch, rows: int) -> Source:
        def texts(places: Longs) -> list[str]:
            chosen = batch.take(pa.array(places))
            values = zip(*(shown(column) for column in chosen.columns), strict=True)
            return [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in values]

        names = batch.schema.names
        columns = {name: single_chunk(batch.column(name)) for name in names}
        numbers = np.arange(rows + 1, rows + batch.num_rows + 1)
        refused = Refusals(self._settings.rejected_rows_max)
        return Source(columns, numbers, texts, refused, batch.num_rows)

    def _check(self, given: int) -> None:
        limit = max(self._settings.ratio_free_bytes, self._settings.ratio_max * self._size_bytes())
        if given > limit:
            raise Refused("a body unpacks to too much", expected=f"at most {limit} bytes", found=given)


def _check_decimals(kind: pa.DataType, name: str) -> None:
    """Arrow computes with any scale that a file states, also where its tables of powers have ended."""
    if pa.types.is_decimal(kind) and not 0 <= kind.scale <= kind.precision:
        raise Corrupted(
            f"column {name} of the body has an impossible type",
            expected="a scale from 0 to the precision",
            found=str(kind),
        )
    if pa.types.is_dictionary(kind):
        _check_decimals(kind.value_type, name)
    for place in range(kind.num_fields):
        _check_decimals(kind.field(place).type, name)


@contextmanager
def open_file(chunks: Iterator[bytes], layout: Format, settings: BodySettings) -> Iterator[FileBody]:
    """Raises Corrupted for what is no such file, Refused for one that is too large to spool."""
    if layout == "arrow":
        stream = _Stream(chunks, settings.record_bytes_max)
        with _damaged(stream):
            reader = pa.ipc.open_stream(pa.PythonFile(stream, mode="r"))
            streamed = FileBody(
                reader.schema, partial(_arrow, reader), lambda: stream.taken, settings, stream
            )
        with reader:
            yield streamed
        return
    with tempfile.TemporaryFile(prefix="rtolap-load-") as spool:
        size = _spool(chunks, spool, settings.spool_bytes_max)
        source = pa.PythonFile(spool, mode="r")
        with _damaged():
            if layout == "parquet":
                parquet = pa.parquet.ParquetFile(
                    source, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True
                )
                body = FileBody(parquet.schema_arrow, partial(_parquet, parquet), lambda: size, settings)
            else:
                orc = pa.orc.ORCFile(source)
                body = FileBody(orc.schema, partial(_orc, orc), lambda: size, settings)
        yield body


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
        try:
            spool.write(chunk)
            spool.flush()
        except OSError as error:
            raise Unavailable(
                "a body cannot be spooled", found=error.strerror, action="free disk space"
            ) from error
    spool.seek(0)
    return size


@contextmanager
def _damaged(stream: _Stream | None = None) -> Iterator[None]:
    """Arrow's errors in our tree; what the chunks of `stream` have raised stays what it is."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        if stream is not None and stream.failure is not None:
            raise stream.failure from None
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Corrupted("the body is not what its format says, or is cut short", found=text) from error


class _Stream(io.RawIOBase):
    """The chunks as a file. One message may not be longer than `message_bytes_max`."""

    def __init__(self, chunks: Iterator[bytes], message_bytes_max: int) -> None:
        self._chunks, self._bytes_max = chunks, message_bytes_max
        self._held = bytearray()
        self.taken = 0
        self.failure: BaseException | None = None

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size > self._bytes_max:
            raise Refused(
                "a record batch is too long", expected=f"at most {self._bytes_max} bytes", found=size
            )
        while size < 0 or len(self._held) < size:
            try:
                chunk = next(self._chunks, b"")
            except BaseException as error:
                self.failure = error
                raise
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
