"""History: READY versions in the object store. The engine that reads them is a seam.

`EmbeddedHistory` reads the smallest cuboid that holds the dimensions that are read and filtered by, prunes
row groups by the filter, and groups what it read by what was requested where that is many rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Protocol, TypeVar

import pyarrow as pa

from rtolap.base.errors import Corrupted
from rtolap.cubes.format.manifest import CuboidEntry, HistoryManifest
from rtolap.metadata.records import SegmentRecord
from rtolap.object_store.store import ObjectStore
from rtolap.query.cancel import Cancellation
from rtolap.query.cubes.history_files import HistoryFiles
from rtolap.query.cubes.history_rows import CuboidRows, FileColumns, HistoryRows
from rtolap.query.cubes.merge import group_partials
from rtolap.query.history_cache.cache import HistoryCache
from rtolap.query.plan import CubeRead, ReadStats

SEGMENTS_AT_ONCE = 8  # of one statement, so that a long one leaves threads to others
READS_MAX = 32  # of all statements
RAW_ROWS = 1 << 20  # that wait until they are filtered
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
        self._columns = FileColumns(self._files.footers)
        self._reads: ThreadPoolExecutor | None = None
        if not store.is_local:  # a disk answers before another thread has begun
            self._reads = ThreadPoolExecutor(READS_MAX, thread_name_prefix="history-read")

    def close(self) -> None:
        if self._reads is not None:
            self._reads.shutdown(wait=False, cancel_futures=True)

    def read(
        self, read: CubeRead, segments: Sequence[SegmentRecord], stats: ReadStats, cancellation: Cancellation
    ) -> pa.Table:
        rows = HistoryRows(read, self._files.footers, self._columns)

        def read_segment(segment: SegmentRecord) -> tuple[CuboidRows, ReadStats]:
            done = ReadStats(read.cube)
            location, cuboid = self._choose(rows.needed, segment, done)
            found = self._files.use(*(segment, location, cuboid, done), rows.of, verified=True)
            _count(done, cuboid, found.kept)
            return found, done

        grouped, ready, raw = rows.empty, list[pa.Table](), list[pa.Table]()
        raw_rows = ready_rows = 0
        for found, done in self._beside(read_segment, segments, cancellation, alone=rows.has_sketches):
            _add(stats, done)
            if found.is_filtered:
                ready.append(found.table)
                ready_rows += found.table.num_rows
            else:
                raw.append(found.table)
                raw_rows += found.table.num_rows
            if raw_rows >= RAW_ROWS:
                ready.append(rows.filtered(raw))
                ready_rows += ready[-1].num_rows
                raw, raw_rows = [], 0
            if ready_rows >= max(GROUPED_ROWS, grouped.num_rows) and not rows.has_sketches:
                grouped, ready, ready_rows = group_partials(read, pa.concat_tables([grouped, *ready])), [], 0
        return pa.concat_tables([grouped, *ready, rows.filtered(raw)])

    def estimate(
        self, read: CubeRead, segments: Sequence[SegmentRecord], stats: ReadStats, cancellation: Cancellation
    ) -> None:
        rows = HistoryRows(read, self._files.footers, self._columns)

        def look(segment: SegmentRecord) -> ReadStats:
            done = ReadStats(read.cube)
            location, cuboid = self._choose(rows.needed, segment, done)
            kept = self._files.use(*(segment, location, cuboid, done), rows.kept, verified=False)
            _count(done, cuboid, kept)
            return done

        for done in self._beside(look, segments, cancellation):
            _add(stats, done)

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

    def _choose(
        self, needed: Collection[str], segment: SegmentRecord, stats: ReadStats
    ) -> tuple[str, CuboidEntry]:
        location = segment.location
        if location is None:
            raise Corrupted(
                f"{segment.cube}/{segment.name} is at version {segment.version} without a location",
                action="queue the segment to be built again",
            )
        cuboid = choose_cuboid(self._files.manifest(location, segment), needed)
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


def choose_cuboid(manifest: HistoryManifest, needed: Collection[str]) -> CuboidEntry:
    """Return the one with the fewest rows that holds every dimension that is read or filtered by."""
    wanted = frozenset(needed)
    fitting = [cuboid for cuboid in manifest.cuboids if wanted.issubset(cuboid.dimensions)]
    if not fitting:
        raise Corrupted(
            f"history of {manifest.cube}/{manifest.segment} v{manifest.version} has no fitting cuboid",
            expected=f"one with {', '.join(sorted(wanted))}",
            found=", ".join(cuboid.name for cuboid in manifest.cuboids) or "none",
            action="queue the segment to be built again",
        )
    return min(fitting, key=lambda cuboid: (cuboid.rows, len(cuboid.dimensions)))
