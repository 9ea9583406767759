"""Large segments in pieces: which task reads what, and what each task does. No Spark: it runs the tasks.

1. read       row groups of input files, merged where that leaves fewer rows, split by a hash of the keys
2. merge      a piece of a segment: its rows of the base cuboid as a file, and every other cuboid out of the
              smallest that this task has made and that contains it
3. combine    cuboids of segments of several pieces: rows of all pieces, merged, as files

A segment of one piece is read where it is merged, and its cuboids are files at once. Between 2 and 3 rows
lie in the batch's scratch folder. Names of files follow from the plan, so a task that is run again replaces
what it wrote before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import pyarrow.parquet as pq

from rtolap.base.ids import CarryingPool
from rtolap.cubes.format.blocks import Block, in_one, joined, merged, read_blocks, split, write_block
from rtolap.cubes.format.build_batch import SEGMENT_COLUMN
from rtolap.model.cube import Cuboid, Schema
from rtolap.object_store.store import ObjectStore, open_store

PIECE_ROWS_MAX = 1_500_000  # merged by a task: some 100 bytes a row, and as much again at work
PIECE_BYTES_MAX = 256 << 20  # decoded, as Parquet tells them: rows with large sketches are fewer
_PIECE_ROWS_MIN = 250_000  # smaller ones do not pay for another task
_READ_ROWS = 1_000_000  # by a task: rows that it splits are in memory together
_PARENT_ROWS_MAX = 4_000_000  # of cuboids from which others may be made
_SPOOL_BYTES = 64 << 20
_WORKERS = 8  # footers read at a time


class FileRowGroups(NamedTuple):
    """Row groups of a Parquet file."""

    path: str
    groups: tuple[int, ...]


class SegmentPiece(NamedTuple):
    """A piece of a segment that one task merges.

    Attributes:
        number: of the piece, among `of` pieces of the segment.
        sources: the row groups that the piece reads itself; only where it is the segment's only piece.
    """

    segment: int
    number: int
    of: int
    sources: tuple[FileRowGroups, ...] = ()


class ReadTask(NamedTuple):
    """A task that reads for all pieces of a segment.

    Attributes:
        source: the row groups to read.
        first: the place of the segment's first piece among all pieces.
        pieces: the number of the segment's pieces.
    """

    source: FileRowGroups
    first: int
    pieces: int


class PiecePlan(NamedTuple):
    pieces: tuple[SegmentPiece, ...]
    reads: tuple[ReadTask, ...]


class WrittenFile(NamedTuple):
    """A file of a cuboid of a segment."""

    segment: int
    cuboid: int
    bytes: int


class Spooled(NamedTuple):
    """Rows of a cuboid of a segment that wait to be combined, at a place in a file of the scratch folder."""

    segment: int
    cuboid: int
    bucket: int
    rows: int
    path: str
    start: int
    bytes: int


class Combined(NamedTuple):
    """A task that makes one file of a cuboid."""

    segment: int
    cuboid: int
    number: int
    parts: tuple[Spooled, ...]


def plan_pieces(store: ObjectStore, inputs: Sequence[Sequence[str]], tasks: int) -> PiecePlan:
    """Plan the pieces of a build. `inputs` are the files of each segment; `tasks` is the number of tasks at a
    time."""
    with CarryingPool(_WORKERS) as pool:
        files = [list(pool.map(lambda path: (path, _sizes(store, path)), paths)) for paths in inputs]
    pieces: list[SegmentPiece] = []
    reads: list[ReadTask] = []
    for segment, of_segment in enumerate(files):
        rows = sum(size.rows for _, sizes in of_segment for size in sizes)
        size_bytes = sum(size.bytes for _, sizes in of_segment for size in sizes)
        count = pieces_of(rows, size_bytes, len(inputs), tasks)
        if count == 1:
            sources = (FileRowGroups(path, tuple(range(len(sizes)))) for path, sizes in of_segment)
            pieces.append(SegmentPiece(segment, 0, 1, tuple(sources)))
            continue
        reads += [
            ReadTask(FileRowGroups(path, groups), len(pieces), count)
            for path, sizes in of_segment
            for groups in _runs([size.rows for size in sizes])
        ]
        pieces += [SegmentPiece(segment, number, count) for number in range(count)]
    return PiecePlan(tuple(pieces), tuple(reads))


def pieces_of(rows: int, size_bytes: int, segments: int, tasks: int) -> int:
    """Return how many pieces a segment of this size gets; a lone one occupies all tasks, equally long."""
    count = max(-(-rows // PIECE_ROWS_MAX), -(-size_bytes // PIECE_BYTES_MAX))
    if segments < tasks and rows > _PIECE_ROWS_MIN:
        count = -(-count // tasks) * tasks
    return max(count, 1)


def plan_combined(spooled: Iterable[Spooled]) -> list[Combined]:
    """Return a task for each cuboid of a segment, several where it has many rows; the largest first."""
    by_cuboid: dict[tuple[int, int], list[Spooled]] = {}
    for part in spooled:
        by_cuboid.setdefault((part.segment, part.cuboid), []).append(part)
    tasks = []
    for (segment, cuboid), parts in by_cuboid.items():
        files = -(-sum(part.rows for part in parts) // PIECE_ROWS_MAX)
        buckets = 1 + max(part.bucket for part in parts)
        for number in range(files):
            own = tuple(part for part in parts if part.bucket * files // buckets == number)
            if own:
                tasks.append(Combined(segment, cuboid, number, own))
    return sorted(tasks, key=lambda task: -sum(part.rows for part in task.parts))


class _Size(NamedTuple):
    """The size of a row group."""

    rows: int
    bytes: int


class BuildTasks:
    """The work of a batch's tasks, wherever they run."""

    def __init__(self, store_uri: str, schema: Schema, cuboids: Sequence[Cuboid], folder: str) -> None:
        self._store_uri = store_uri
        self._schema = schema
        self._cuboids = tuple(cuboids)
        self._folder = folder

    def folder_of(self, cuboid: int) -> str:
        """Return the folder below which the files of a cuboid lie, by segment."""
        return f"{self._folder}/cuboid-{cuboid}"

    def read(self, task: ReadTask) -> Iterator[tuple[int, bytes]]:
        """Return the place of a piece, and its rows."""
        for block in read_blocks(self._store, self._schema, task.source.path, task.source.groups):
            for part in split(self._schema, block, task.pieces):
                yield task.first + part.piece, part.data

    def merge(self, piece: SegmentPiece, parts: Sequence[bytes]) -> Iterator[WrittenFile | Spooled]:
        """Merge what was read for a piece (`parts`)."""
        if piece.of == 1:
            blocks = [
                block
                for source in piece.sources
                for block in read_blocks(self._store, self._schema, source.path, source.groups)
                if block.rows
            ]
            rows = in_one(self._schema, blocks) if blocks else None
            blocks.clear()
        else:
            rows = joined(self._schema, len(self._cuboids[0].dimensions), parts) if parts else None
        if rows is None:
            return
        spool = _Spool(self._store, f"{self._folder}/spool/{piece.segment}-{piece.number}")
        for cuboid, block in self._all_cuboids(rows):
            if piece.of == 1 or cuboid == 0:
                yield self._write(piece.segment, cuboid, piece.number, block)
            else:
                for part in split(self._schema, block, piece.of):
                    yield spool.add_piece(piece.segment, cuboid, part.piece, part.rows, part.data)
        spool.close()

    def combine(self, task: Combined) -> WrittenFile:
        dimensions = len(self._cuboids[task.cuboid].dimensions)
        files: dict[str, list[Spooled]] = {}
        for part in task.parts:
            files.setdefault(part.path, []).append(part)
        data = []
        for path, parts in files.items():
            with self._store.open(path) as source:
                data += [source.read_at(part.bytes, part.start) for part in parts]
        rows = joined(self._schema, dimensions, data)
        block = merged(self._schema, rows, range(dimensions))
        return self._write(task.segment, task.cuboid, task.number, block)

    def _all_cuboids(self, rows: Block) -> Iterator[tuple[int, Block]]:
        """Yield number and rows of each cuboid, made of the smallest one at hand that contains it."""
        base = merged(self._schema, rows, range(len(rows.keys)))
        parents = {0: base}
        yield 0, base
        for number, cuboid in enumerate(self._cuboids[1:], start=1):
            wanted = set(cuboid.dimensions)
            containing = [n for n in parents if wanted <= set(self._cuboids[n].dimensions)]
            parent = min(containing, key=lambda n: parents[n].rows)
            names = self._cuboids[parent].dimensions
            block = merged(self._schema, parents[parent], [names.index(name) for name in cuboid.dimensions])
            parents[number] = block
            while (
                len(parents) > 1
                and sum(each.rows for each in parents.values()) > _PARENT_ROWS_MAX + base.rows
            ):
                del parents[max((n for n in parents if n), key=lambda n: parents[n].rows)]
            yield number, block

    def _write(self, segment: int, cuboid: int, number: int, block: Block) -> WrittenFile:
        path = f"{self.folder_of(cuboid)}/{SEGMENT_COLUMN}={segment}/part-{number:05}.parquet"
        names = self._cuboids[cuboid].dimensions
        return WrittenFile(segment, cuboid, write_block(self._store, path, self._schema, names, block))

    @property
    def _store(self) -> ObjectStore:
        return _opened(self._store_uri)


class _Spool:
    """Writes parts into files of some size, one after another."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._files = 0
        self._parts: list[bytes] = []
        self._bytes = 0

    def add_piece(self, segment: int, cuboid: int, bucket: int, rows: int, data: bytes) -> Spooled:
        """Add a part, which is there once the spool was closed."""
        if self._bytes > _SPOOL_BYTES:
            self.close()
        start = self._bytes
        self._parts.append(data)
        self._bytes += len(data)
        return Spooled(segment, cuboid, bucket, rows, f"{self._prefix}-{self._files}.arrow", start, len(data))

    def close(self) -> None:
        if self._parts:
            self._store.write(f"{self._prefix}-{self._files}.arrow", b"".join(self._parts))
            self._files += 1
        self._parts, self._bytes = [], 0


def _sizes(store: ObjectStore, path: str) -> list[_Size]:
    with store.open(path) as source:
        metadata = pq.read_metadata(source)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [_Size(group.num_rows, group.total_byte_size) for group in groups]


def _runs(rows: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield neighbouring row groups that a task reads."""
    run: list[int] = []
    total = 0
    for number, of_group in enumerate(rows):
        if run and total + of_group > _READ_ROWS:
            yield tuple(run)
            run, total = [], 0
        run.append(number)
        total += of_group
    if run:
        yield tuple(run)


@lru_cache(maxsize=4)
def _opened(uri: str) -> ObjectStore:
    """Return the object store at `uri`. All tasks of a process share a client."""
    return open_store(uri)
