"""Parquet, ORC and Arrow streams → source columns, as their files type them.

Parquet and ORC are read from their end, so they are received whole before (`spool`). Batches of rows come out
one after another; like packed bodies, none may grow absurdly.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from rtolap.base.errors import Corrupted, DefinitionError
from rtolap.columnar.chunks import single_chunk
from rtolap.stored.bodies.arrow_messages import Chunks, Messages
from rtolap.stored.bodies.batches import Longs, Refusals, SourceRows
from rtolap.stored.bodies.casting import shown
from rtolap.stored.bodies.file_sizes import (
    Allowance,
    buffer_bytes,
    parquet_bytes,
    parquet_dictionaries,
    parquet_rows,
    shared_text_bytes,
    slices,
)
from rtolap.stored.bodies.options import Format
from rtolap.stored.bodies.orc.stripes import OrcStripes
from rtolap.stored.bodies.settings import BodySettings
from rtolap.stored.bodies.spool import held, write_spool
from rtolap.stored.engine.rows.texts import plain_schema, plain_texts, saves_work

_READ_BYTES = 1 << 20  # at once, of a file; memory is read where it lies
Batches = Callable[[Collection[str]], Iterator[pa.RecordBatch]]


class FileBody:
    """A body that is a file.

    Attributes:
        schema: of the file.
        read: gives its rows, of the named columns only; once.
    """

    def __init__(
        self,
        schema: pa.Schema,
        batches: Batches,
        allowance: Allowance,
        settings: BodySettings,
        stream: Chunks | None = None,
    ) -> None:
        """Take the chunks that `batches` reads in `stream`, if there are any."""
        names = [name.lower() for name in schema.names]
        if len(set(names)) != len(names):
            raise DefinitionError("the body names a column twice", found=", ".join(schema.names))
        for field in schema:
            str(field.type)  # fails where the name of a zone is no text
            _check_decimals(field.type, field.name)
        self.schema = plain_schema(schema)
        self._batches, self._allowance, self._settings = batches, allowance, settings
        self._stream = stream

    def read(self, names: Collection[str]) -> Iterator[SourceRows]:
        """Read the named columns. Raises Corrupted for damaged files, TooLarge for those that unpack to too
        much."""
        rows = 0
        with _damaged(self._stream):
            for whole in self._batches(names):
                self._allowance.spend(buffer_bytes(whole))
                whole.validate(full=True)  # places within bounds, text in UTF-8
                sizes = shared_text_bytes(whole)
                self._allowance.spend(0 if sizes is None else int(sizes.sum()))
                for batch in slices(whole, sizes, self._settings.record_bytes_max):
                    yield self._source(batch, rows)
                    rows += batch.num_rows

    def _source(self, batch: pa.RecordBatch, rows: int) -> SourceRows:
        def texts(places: Longs) -> list[str]:
            chosen = batch.take(pa.array(places))
            values = zip(*(shown(column) for column in chosen.columns), strict=True)
            return [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in values]

        names = batch.schema.names
        columns = {name: _useful(single_chunk(batch.column(name))) for name in names}
        numbers = np.arange(rows + 1, rows + batch.num_rows + 1)
        refused = Refusals(self._settings.rejected_rows_max)
        return SourceRows(columns, numbers, texts, refused, batch.num_rows)


def _useful(column: pa.Array) -> pa.Array:
    """Return the column, without a dictionary that saves nothing."""
    return column if saves_work(column) else plain_texts(column)


def _check_decimals(kind: pa.DataType, name: str) -> None:
    """Check the scale of decimals. Arrow computes with any scale that a file states, also where its tables of
    powers have ended."""
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
    """Open a file. Raises Corrupted for content of another kind, TooLarge for a file that is too large to
    spool."""
    if layout == "arrow":
        stream = Chunks(chunks, settings.record_bytes_max)
        allowance = Allowance(settings, lambda: stream.taken)
        messages = Messages(stream, settings.record_bytes_max, allowance.expect)
        with _damaged(stream):
            reader = pa.ipc.open_stream(pa.PythonFile(messages, mode="r"))
            streamed = FileBody(reader.schema, partial(_arrow, reader), allowance, settings, stream)
        with reader:
            yield streamed
        return
    if layout == "orc":
        with tempfile.TemporaryFile(prefix="rtolap-load-") as spool:
            size = write_spool(chunks, spool, settings.spool_bytes_max)
            with _damaged():
                stripes = OrcStripes(spool, settings)
            with stripes:
                with _damaged():
                    body = FileBody(
                        stripes.schema, stripes.batches, Allowance(settings, lambda: size), settings
                    )
                yield body
        return
    with held(chunks, settings) as (source, received):
        allowance = Allowance(settings, lambda: received)
        with _damaged():
            parquet = _Parquet(source, allowance, settings)
            body = FileBody(parquet.schema, parquet.batches, allowance, settings)
        yield body


def _arrow(reader: pa.RecordBatchReader, names: Collection[str]) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        yield batch.select(list(names))


class _Parquet:
    """Text comes in the dictionaries that the file has for it: then it is known how large it will be."""

    def __init__(self, source: pa.NativeFile, allowance: Allowance, settings: BodySettings) -> None:
        first = pa.parquet.ParquetFile(source, pre_buffer=False)
        self.schema = first.schema_arrow
        self._allowance, self._settings = allowance, settings
        self._file = pa.parquet.ParquetFile(
            source,
            metadata=first.metadata,
            read_dictionary=parquet_dictionaries(first),
            pre_buffer=False,
            buffer_size=0 if isinstance(source, pa.BufferReader) else _READ_BYTES,
            page_checksum_verification=True,
        )

    def batches(self, names: Collection[str]) -> Iterator[pa.RecordBatch]:
        self._allowance.expect(parquet_bytes(self._file.metadata, names))
        rows = parquet_rows(self._file, names, self._settings.record_bytes_max)
        return iter(self._file.iter_batches(rows, columns=list(names), use_threads=False))


@contextmanager
def _damaged(stream: Chunks | None = None) -> Iterator[None]:
    """Translate Arrow's errors into our tree. Errors that the chunks of `stream` have raised stay the
    same."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        if stream is not None and stream.failure is not None:
            raise stream.failure from None
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Corrupted("the body is not what its format says, or is cut short", found=text) from error
