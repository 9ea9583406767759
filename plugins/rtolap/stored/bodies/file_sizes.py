"""Unpacked sizes of columns of files, computed before unpacking: few bytes may stand for very many."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from rtolap.base.errors import TooLarge
from rtolap.stored.bodies.settings import BodySettings

ROWS_AT_ONCE = 65_536
_VIEW_BYTES = 16
_INT32_MAX = (1 << 31) - 1
_BYTES = (
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_large_string,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_string_view,
    pa.types.is_binary_view,
)
Longs = NDArray[np.int64]


class Allowance:
    """Limit of the unpacked size of a body, by the size received so far. Raises TooLarge beyond it."""

    def __init__(self, settings: BodySettings, size_bytes: Callable[[], int]) -> None:
        self._settings, self._size_bytes = settings, size_bytes
        self._spent = 0

    def expect(self, more: int) -> None:
        """Note that so many bytes are about to be unpacked."""
        limit = max(self._settings.ratio_free_bytes, self._settings.ratio_max * self._size_bytes())
        if self._spent + more > limit:
            raise TooLarge(
                "a body unpacks to too much", expected=f"at most {limit} bytes", found=self._spent + more
            )

    def spend(self, more: int) -> None:
        """Note that so many bytes have been unpacked."""
        self.expect(more)
        self._spent += more


def buffer_bytes(batch: pa.RecordBatch) -> int:
    """Return the bytes of buffers without dictionaries, which many batches may share."""
    columns = (column.indices if pa.types.is_dictionary(column.type) else column for column in batch.columns)
    return sum(int(column.get_total_buffer_size()) for column in columns)


def shared_text_bytes(batch: pa.RecordBatch) -> Longs | None:
    """Return for each row the bytes of its values that share storage with others so far; None if none do.

    Places in dictionaries are not checked: the batch has to be valid.
    """
    sizes = [found for column in batch.columns if (found := _shared(column)) is not None]
    if not sizes:
        return None
    total_bytes: Longs = sizes[0].astype(np.int64)
    for each in sizes[1:]:
        total_bytes += each
    return total_bytes


def _shared(column: pa.Array) -> NDArray[np.int32] | Longs | None:
    kind = column.type
    if pa.types.is_dictionary(kind) and _is_bytes(kind.value_type):
        lengths = pc.take(_narrow(_lengths(column.dictionary)), column.indices, boundscheck=False)
        return np.asarray(lengths.fill_null(0) if lengths.null_count else lengths)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return _lengths(column)
    return None


def _narrow(lengths: Longs) -> pa.Array:
    """Return lengths as numbers of 32 bits if all of them fit: half as much to copy for each row."""
    fit = not len(lengths) or int(lengths.max()) <= _INT32_MAX
    return pa.array(lengths, pa.int32() if fit else pa.int64())


def _is_bytes(kind: pa.DataType) -> bool:
    return any(is_such(kind) for is_such in _BYTES)


def _lengths(values: pa.Array) -> Longs:
    if not len(values):
        return np.zeros(0, np.int64)
    if pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):
        words = np.frombuffer(values.buffers()[1], np.int32, 4 * len(values), _VIEW_BYTES * values.offset)
        return np.where(np.asarray(values.is_valid()), words[::4], 0).astype(np.int64)
    return np.asarray(pc.binary_length(values).cast(pa.int64()).fill_null(0))


def slices(batch: pa.RecordBatch, sizes: Longs | None, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Yield slices of at most ROWS_AT_ONCE rows, and of at most `bytes_max` by `sizes` unless of a single
    row.
    """
    ends = None if sizes is None else np.cumsum(sizes)
    start = 0
    while start < batch.num_rows:
        count = min(ROWS_AT_ONCE, batch.num_rows - start)
        if ends is not None:
            before = int(ends[start - 1]) if start else 0
            fitting = int(np.searchsorted(ends, before + bytes_max, "right")) - start
            count = max(1, min(count, fitting))
        yield batch.slice(start, count)
        start += count


def parquet_bytes(metadata: pa.parquet.FileMetaData, names: Collection[str]) -> int:
    """Return the unpacked size of the pages of some columns, as the file states it. Texts in dictionaries
    count once.
    """
    paths = [metadata.schema.column(place).path for place in range(metadata.num_columns)]
    wanted = [place for place, path in enumerate(paths) if any(_belongs(path, name) for name in names)]
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    return sum(
        max(int(group.column(place).total_uncompressed_size), 0) for group in groups for place in wanted
    )


def _belongs(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}.")


def parquet_dictionaries(file: pa.parquet.ParquetFile) -> list[str]:
    """Return columns of text that have dictionaries: to be read as such, so that their sizes are seen
    first.
    """
    metadata, schema = file.metadata, file.schema_arrow
    places = {metadata.schema.column(place).path: place for place in range(metadata.num_columns)}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [
        field.name
        for field in schema
        if (pa.types.is_string(field.type) or pa.types.is_binary(field.type))
        and not pa.types.is_fixed_size_binary(field.type)
        and field.name in places
        and any(group.column(places[field.name]).has_dictionary_page for group in groups)
    ]


def parquet_rows(file: pa.parquet.ParquetFile, names: Collection[str], bytes_max: int) -> int:
    """Return how many rows to read at once: about `bytes_max`, also of a dictionary with long values of one
    length.
    """
    kinds = [file.schema_arrow.field(name).type for name in names]
    width = sum(int(kind.byte_width) for kind in kinds if pa.types.is_fixed_size_binary(kind))
    width += parquet_bytes(file.metadata, names) // max(file.metadata.num_rows, 1)
    return int(max(1, min(ROWS_AT_ONCE, bytes_max // max(width, 1))))
