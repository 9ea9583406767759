"""States of Parquet files: size, checksum, rows and events, as they are read back.

A build compares them with what manifests say, for inputs and outputs alike. Whoever has a few small files
reads them here, several at a time. A build of large ones has the tasks of its cluster read them, so that the
driver reads as little of a thousand files as of one. No Spark in here: it runs `look_at_file` elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rtolap.base.errors import Corrupted, RtolapError
from rtolap.base.ids import CarryingPool
from rtolap.cubes.format.file_ranges import digests, range_ends
from rtolap.cubes.format.manifest import FileEntry, FileRange
from rtolap.cubes.format.pages import open_parquet
from rtolap.model.cube import ROWS
from rtolap.object_store.store import ObjectStore, open_store

_WORKERS = 8  # mostly waiting for a disk or a remote store


class FileState(NamedTuple):
    """The state of a file, as it is found.

    Attributes:
        rows: 0 where it is not Parquet.
        events: the sum of `__rows`; None where it was not asked for.
        problem: why its rows cannot be read; None for Parquet.
        ranges: see `FileEntry`; empty where they were not asked for.
    """

    bytes: int
    sha256: str
    rows: int
    events: int | None = None
    problem: str | None = None
    ranges: tuple[FileRange, ...] = ()


class FileToLookAt(NamedTuple):
    """A file, by its path in the store, whether its events are counted too, and its ranges hashed."""

    path: str
    counts_events: bool = False
    hashes_ranges: bool = False


Looked = FileState | RtolapError
LookAtFiles = Callable[[str, Sequence[FileToLookAt]], Sequence[Looked]]  # the store's URI, and files in it


def file_state(store: ObjectStore, file: FileToLookAt) -> FileState:
    """Raises NotFound for a missing file."""
    events: int | None = None
    ends: tuple[int, ...] = ()
    try:
        with store.open(file.path) as source:
            parquet = open_parquet(source)
            if file.counts_events:
                events = _count_events(parquet)
            if file.hashes_ranges:
                ends = range_ends(parquet.metadata, source.size())
            rows = parquet.metadata.num_rows
    except pa.ArrowInvalid as error:
        digest, size_bytes = store.sha256(file.path)
        return FileState(size_bytes, digest, 0, problem=str(error))
    digest, size_bytes, ranges = digests(store.chunks(file.path), ends)
    return FileState(size_bytes, digest, rows, events, ranges=ranges)


def count_events(store: ObjectStore, path: str) -> int:
    """Return the sum of `__rows` of a file."""
    with store.open(path) as source:
        return _count_events(open_parquet(source))


def look_at_file(object_store: str, file: FileToLookAt) -> Looked:
    """Return the state of a file, or the error of looking at it: what a task elsewhere sends back."""
    try:
        return file_state(open_store(object_store), file)
    except RtolapError as error:
        return error


def look_here(object_store: str, files: Sequence[FileToLookAt]) -> list[Looked]:
    """Look at files in this process, several at a time."""
    with CarryingPool(_WORKERS) as pool:
        return list(pool.map(partial(look_at_file, object_store), files))


def entry_of(name: str, looked: Looked) -> FileEntry:
    """Return the line of a manifest for a file that was just written. Raises errors of looking, and Corrupted
    for one that is not Parquet."""
    if isinstance(looked, RtolapError):
        raise looked
    if looked.problem is not None:
        raise Corrupted(f"file {name} is not Parquet", found=looked.problem)
    return FileEntry(name, looked.rows, looked.bytes, looked.sha256, looked.ranges)


def events_of(looked: Looked) -> int:
    """Return the events of a file that was looked at for them. Raises errors of looking."""
    if isinstance(looked, RtolapError):
        raise looked
    assert looked.events is not None or looked.problem is not None, "it was looked at without its events"
    return looked.events or 0


def _count_events(parquet: pq.ParquetFile) -> int:
    return sum(pc.sum(batch.column(0)).as_py() or 0 for batch in parquet.iter_batches(columns=[ROWS]))
