"""Footers of Parquet files of history, read once: a file that is published never changes.

A footer is two requests to a remote store and some 0.3 ms of parsing, and says which rows need not be read.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from rtolap.query.cubes.byte_bounded import ByteBounded

BYTES_MAX = 32 << 20  # of footers as they are stored; parsed they take a few times as much


class HistoryFile(NamedTuple):
    """A file of history where it is read: `path` is one that `filesystem` knows, `bytes` its size."""

    filesystem: fs.FileSystem
    path: str
    bytes: int


class Footer(NamedTuple):
    """`fragment`: the file as part of a data set, which holds the parsed footer."""

    fragment: ds.ParquetFileFragment
    rows: int
    columns: frozenset[str]


class Footers:
    """Thread-safe."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._format = ds.ParquetFileFormat()
        self._footers: ByteBounded[Footer] = ByteBounded(bytes_max)

    def footer(self, file: HistoryFile) -> Footer:
        """Raises OSError and pyarrow.ArrowException."""
        known = self._footers.find(file.path)
        if known is not None:
            return known
        fragment = self._format.make_fragment(file.path, file.filesystem, file_size=file.bytes)
        fragment.ensure_complete_metadata()
        metadata = fragment.metadata
        footer = Footer(fragment, metadata.num_rows, frozenset(metadata.schema.names))
        self._footers.keep(file.path, footer, metadata.serialized_size)
        return footer

    def discard(self, file: HistoryFile) -> None:
        """Its reading failed: what is known of it may be wrong."""
        self._footers.discard(file.path)

    def dataset(self, fragments: list[ds.ParquetFileFragment], schema: pa.Schema) -> ds.FileSystemDataset:
        return ds.FileSystemDataset(fragments, schema, self._format)
