"""The ranges of a Parquet file: its row groups, one after the other, and what follows them.

The first range begins with the file, so that all of them together are the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from rtolap.cubes.format.manifest import FileRange


def range_ends(metadata: pq.FileMetaData, size_bytes: int) -> tuple[int, ...]:
    """Return where each range ends, the last one with the file.

    Empty for a file of one row group, and where row groups do not follow each other in the file.
    """
    starts, end = [], 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = [group.column(column) for column in range(group.num_columns)]
        begins = [
            min(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset)
            for chunk in chunks
        ]
        start = min(begins)
        if start < end:
            return ()
        starts.append(start)
        end = max(begin + chunk.total_compressed_size for begin, chunk in zip(begins, chunks, strict=True))
    return (*starts[1:], end, size_bytes) if len(starts) > 1 and end < size_bytes else ()


def digests(chunks: Iterable[bytes], ends: tuple[int, ...]) -> tuple[str, int, tuple[FileRange, ...]]:
    """Return the checksum of all bytes, how many they are, and the ranges with these ends."""
    whole, part = hashlib.sha256(), hashlib.sha256()
    at, found, left = 0, [], list(ends)
    for chunk in chunks:
        whole.update(chunk)
        view = memoryview(chunk)
        while left and at + len(view) >= left[0]:
            cut = left.pop(0) - at
            part.update(view[:cut])
            found.append(part.hexdigest())
            part, view, at = hashlib.sha256(), view[cut:], at + cut
        if left:
            part.update(view)
        at += len(view)
    sizes = [stop - start for start, stop in pairwise((0, *ends))]
    ranges = tuple(FileRange(size, digest) for size, digest in zip(sizes, found, strict=True))
    return whole.hexdigest(), at, ranges


def ranges_of(data: bytes) -> tuple[FileRange, ...]:
    """Return the ranges of a file that is in memory."""
    ends = range_ends(pq.read_metadata(pa.BufferReader(data)), len(data))
    return digests([data], ends)[2]


def range_bounds(ranges: tuple[FileRange, ...]) -> Iterator[tuple[int, FileRange]]:
    """Yield each range with the place of its first byte."""
    start = 0
    for each in ranges:
        yield start, each
        start += each.bytes
