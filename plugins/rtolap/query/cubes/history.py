"""History: READY versions in the object store. The engine that reads them is a seam.

`EmbeddedHistory` reads the smallest cuboid that holds the dimensions that are read and filtered by, prunes
row groups by the filter, and groups what it read by what was requested where that is many rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Protocol, TypeVar

import pyarrow as pa

from rtolap.base.errors import Corrupted
from rtolap.columnar.schema import physical_schema
from rtolap.cubes.format.manifest import CuboidEntry, HistoryManifest
from rtolap.metadata.records import SegmentRecord
from rtolap.model.predicate import columns_of
from rtolap.object_store.store import ObjectStore
from rtolap.query.cancel import Cancellation
from rtolap.query.cubes.history_files import HistoryFiles
from rtolap.query.cubes.history_footers import HistoryFile
from rtolap.query.cubes.history_rows import SegmentRows, has_sketches
from rtolap.query.cubes.merge import group_partials
from rtolap.query.history_cache.cache import HistoryCache
from rtolap.query.plan import CubeRead, ReadStats

SEGMENTS_AT_ONCE = 8  # of one statement, so that a long one leaves threads to others
READS_MAX = 32  # of all statements
GROUPED_ROWS = 65_536  # that wait until they are grouped: a call costs as much as some thousands of rows

T = TypeVar("T")


class HistoryEngine(Protocol):
    def read(
        self, read: CubeRead, segments: Sequence[SegmentRecord], stats: ReadStats, cancellation: Cancellation
    ) -> pa.Table:
        """Plain partials of the segments' versions that pass the read's filter; fills in `stats`.

        Raises Corrupted for a manifest or file that is missing or not what it should be, and Unavailable
        when the object store does not answer.
        """
        ...

    def estimate(
        self, read: CubeRead, segments: Sequence[SegmentRecord], stats: ReadStats, cancellation: Cancellation
    ) -> None:
        """Fills in `stats` as `read` would, out of manifests and statistics: no row is read."""
        ...

    def close(self) -> None: ...


class EmbeddedHistory:
    """Thread-safe. Segments of a remote store are read beside each other, SEGMENTS_AT_ONCE of a statement."""

    def __init__(self, store: ObjectStore, cache: HistoryCache | None = None) -> None:
        """`cache`: where copies of the store's files may be found."""
        self._files = HistoryFiles(store, cache)
        self._reads: ThreadPoolExecutor | None = None
        if not store.is_local:  # a disk answers before another thread has begun
            self._reads = ThreadPoolExecutor(READS_MAX, thread_name_prefix="history-read")

    def close(self) -> None:
        if self._reads is not None:
            self._reads.shutdown(wait=False, cancel_futures=True)

    def read(
        self, read: CubeRead, segments: Sequence[SegmentRecord], stats: ReadStats, cancellation: Cancellation
    ) -> pa.Table:
        schema = physical_schema(read.schema, read.dimensions, read.partials, plain=True)
        grouped = schema.empty_table()
        pending: list[pa.Table] = []
        rows = 0
        for table, done in self._tables(read, segments, cancellation):
            _add(stats, done)
            pending.append(table)
            rows += table.num_rows
            if rows >= max(GROUPED_ROWS, grouped.num_rows) and not has_sketches(read):
                grouped, pending, rows = group_partials(read, pa.concat_tables([grouped, *pending])), [], 0
        return pa.concat_tables([grouped, *pending])

    def estimate(
        self, read: CubeRead, segments: Sequence[SegmentRecord], stats: ReadStats, cancellation: Cancellation
    ) -> None:
        def look(segment: SegmentRecord) -> ReadStats:
            done = ReadStats(read.cube)
            location, cuboid = self._choose(read, segment, done)
            kept = self._files.use(
                *(segment, location, cuboid, done),
                lambda files: SegmentRows(read, self._files.footers, files).kept,
                verified=False,
            )
            _count(done, cuboid, kept)
            return done

        for done in self._beside(look, segments, cancellation):
            _add(stats, done)

    def _tables(
        self, read: CubeRead, segments: Sequence[SegmentRecord], cancellation: Cancellation
    ) -> Iterator[tuple[pa.Table, ReadStats]]:
        """The rows of each segment, in order."""

        def read_segment(segment: SegmentRecord) -> tuple[pa.Table, ReadStats]:
            done = ReadStats(read.cube)
            location, cuboid = self._choose(read, segment, done)

            def rows_of(files: Sequence[HistoryFile]) -> tuple[pa.Table, int]:
                rows = SegmentRows(read, self._files.footers, files)
                return rows.read(), rows.kept

            table, kept = self._files.use(*(segment, location, cuboid, done), rows_of, verified=True)
            _count(done, cuboid, kept)
            return table, done

        return self._beside(read_segment, segments, cancellation, alone=has_sketches(read))

    def _beside(
        self,
        call: Callable[[SegmentRecord], T],
        segments: Sequence[SegmentRecord],
        cancellation: Cancellation,
        *,
        alone: bool = False,
    ) -> Iterator[T]:
        """What `call` returns for each segment, in order. `alone`: one after the other: sketches are
        kilobytes each, and no more of them is held than those of one segment."""
        if self._reads is None or alone or len(segments) < 2:
            for segment in segments:
                cancellation.check()
                yield call(segment)
            return
        left = iter(segments)
        running = deque(self._reads.submit(call, segment) for segment in islice(left, SEGMENTS_AT_ONCE))
        try:
            while running:
                cancellation.check()
                result = running.popleft().result()
                running.extend(self._reads.submit(call, segment) for segment in islice(left, 1))
                yield result
        finally:
            for future in running:
                future.cancel()

    def _choose(self, read: CubeRead, segment: SegmentRecord, stats: ReadStats) -> tuple[str, CuboidEntry]:
        location = segment.location
        if location is None:
            raise Corrupted(
                f"{read.cube}/{segment.name} is at version {segment.version} without a location",
                action="queue the segment to be built again",
            )
        cuboid = choose_cuboid(self._files.manifest(location, segment), read)
        stats.cuboids[cuboid.name] = stats.cuboids.get(cuboid.name, 0) + 1
        return location, cuboid


def _count(stats: ReadStats, cuboid: CuboidEntry, kept: int) -> None:
    """Rows that statistics do not rule out, and the others."""
    stats.rows_read += kept
    stats.rows_pruned += cuboid.rows - kept


def _add(stats: ReadStats, segment: ReadStats) -> None:
    for name, number in segment.cuboids.items():
        stats.cuboids[name] = stats.cuboids.get(name, 0) + number
    stats.rows_read += segment.rows_read
    stats.rows_pruned += segment.rows_pruned
    stats.files_cached += segment.files_cached
    stats.files_remote += segment.files_remote


def choose_cuboid(manifest: HistoryManifest, read: CubeRead) -> CuboidEntry:
    """Return the one with the fewest rows that holds every dimension that is read or filtered by."""
    needed = {*read.dimensions, *columns_of(read.filter)}
    fitting = [cuboid for cuboid in manifest.cuboids if needed <= set(cuboid.dimensions)]
    if not fitting:
        raise Corrupted(
            f"history of {manifest.cube}/{manifest.segment} v{manifest.version} has no fitting cuboid",
            expected=f"one with {', '.join(sorted(needed))}",
            found=", ".join(cuboid.name for cuboid in manifest.cuboids) or "none",
            action="queue the segment to be built again",
        )
    return min(fitting, key=lambda cuboid: (cuboid.rows, len(cuboid.dimensions)))
