"""History is READY versions in the object store. The engine that reads them is a seam.

`EmbeddedHistory` reads the smallest cuboid that has the dimensions that are read and filtered by. Columns
that fit into memory are filtered and grouped there, in dictionary codes. Other columns are read out of their
files, and the filter prunes row groups. Results of statements are cached.

Where a Spark service is declared, large reads are made by it (`LargeScans`) instead of here; its results are
cached as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa

from rtolap.base.errors import Corrupted, DefinitionError, TooLarge
from rtolap.cubes.format.manifest import CuboidEntry, HistoryManifest
from rtolap.metadata.records import SegmentRecord
from rtolap.model.cube import smallest_covering
from rtolap.object_store.store import ObjectStore
from rtolap.query.cancel import Cancellation
from rtolap.query.cubes import history_memory, history_results, history_rows
from rtolap.query.cubes.byte_bounded import ByteBounded
from rtolap.query.cubes.history_coded import Choice, CodedRead, LoadedFiles
from rtolap.query.cubes.history_files import HistoryFile, HistoryFiles
from rtolap.query.cubes.history_memory import FileMemory, can_be_coded
from rtolap.query.cubes.history_results import HistoryResult, HistoryResults, statement_of
from rtolap.query.cubes.history_rows import CollectedRows, CuboidRows, FileColumns, HistoryRows
from rtolap.query.cubes.merge import group_partials
from rtolap.query.engine_choice import EngineChoice, EngineRules, HistorySize
from rtolap.query.history_cache.cache import HistoryCache
from rtolap.query.plan import CubeRead, ReadStats
from rtolap.scan.columns import NotCoded

SEGMENTS_AT_ONCE = 8  # of one statement, so that a long one leaves threads to others
READS_MAX = 32  # of all statements
_CHOICE_BYTES_MAX = 16 << 20  # of which cuboid answers what
_CHOICE_BYTES = 400

T = TypeVar("T")


@dataclass(frozen=True)
class MemoryBounds:
    """The bounds of the memory that history takes.

    Attributes:
        file_bytes: for columns of files in dictionary codes.
        column_bytes: for columns that have no such form.
        result_bytes: for results of statements.
    """

    file_bytes: int = history_memory.BYTES_MAX
    column_bytes: int = history_rows.COLUMN_BYTES_MAX
    result_bytes: int = history_results.BYTES_MAX


class ScannedVersion(NamedTuple):
    """A READY version and the cuboid that a read needs of it."""

    segment: SegmentRecord
    location: str
    cuboid: CuboidEntry


class LargeScans(Protocol):
    """The other engine: it filters and merges the partials of many files outside of this process."""

    def read(
        self, read: CubeRead, versions: Sequence[ScannedVersion], cancellation: Cancellation
    ) -> pa.Table:
        """Return plain partials of the rows that pass the read's filter, under the read's schema.

        Raises Corrupted for a file that is missing or damaged, Unavailable when the engine does not answer or
        fails, OutOfRange for a sum beyond its type, and what ends the statement.
        """
        ...

    def close(self) -> None: ...


class HistoryEngine(Protocol):
    def read(
        self, read: CubeRead, segments: Sequence[SegmentRecord], stats: ReadStats, cancellation: Cancellation
    ) -> pa.Table:
        """Return plain partials of the rows in the segments' versions that pass the read's filter.

        A group has one row, unless its sums may overflow. The statistics are added to `stats`.

        Raises Corrupted for a manifest or file that is missing or damaged, and Unavailable when the object
        store does not answer.
        """
        ...

    def estimate(
        self, read: CubeRead, segments: Sequence[SegmentRecord], stats: ReadStats, cancellation: Cancellation
    ) -> None:
        """Fill in `stats` as `read` would, from manifests and statistics. No row is read."""
        ...

    def close(self) -> None: ...


class EmbeddedHistory:
    """History in the embedded engine. It is thread-safe. Segments of a remote store are read beside each
    other, SEGMENTS_AT_ONCE of a statement."""

    def __init__(
        self,
        store: ObjectStore,
        cache: HistoryCache | None = None,
        bounds: MemoryBounds = MemoryBounds(),
        scans: LargeScans | None = None,
        rules: EngineRules = EngineRules(),
    ) -> None:
        """Open the history of the store.

        Args:
            cache: where copies of the store's files may be found; None: nowhere.
            scans: the engine of large reads, which is closed with the history; None: all reads are made here.
            rules: the rules by which the engine of a read is chosen.
        """
        assert rules.has_spark == (scans is not None), "the rules say what there is"
        self._scans = scans
        self._rules = rules
        self._files = HistoryFiles(store, cache)
        self._columns = FileColumns(self._files.footers, bounds.column_bytes)
        self._memory = FileMemory(self._files.footers, bounds.file_bytes)
        self._results = HistoryResults(bounds.result_bytes)
        self._choices: ByteBounded[dict[str, Choice]] = ByteBounded(_CHOICE_BYTES_MAX)
        self._reads: ThreadPoolExecutor | None = None
        if not store.is_local:  # a disk answers before another thread has begun
            self._reads = ThreadPoolExecutor(READS_MAX, thread_name_prefix="history-read")

    def close(self) -> None:
        if self._scans is not None:
            self._scans.close()
        if self._reads is not None:
            self._reads.shutdown(wait=False, cancel_futures=True)

    def read(
        self, read: CubeRead, segments: Sequence[SegmentRecord], stats: ReadStats, cancellation: Cancellation
    ) -> pa.Table:
        rows = HistoryRows(read, self._files.footers, self._columns)
        statement = statement_of(read, rows.empty.schema)
        versions = {_location(segment): segment for segment in segments}
        known = self._results.find(statement, versions.keys())
        done = ReadStats(read.cube)
        tables: list[pa.Table] = []
        left = segments
        if known is not None:
            tables.append(known.table)
            done.cuboids = dict(known.cuboids)
            done.rows_read, done.rows_pruned = known.rows_read, known.rows_pruned
            self._count_files(rows, [versions[location] for location in sorted(known.locations)], done)
            left = [segment for location, segment in versions.items() if location not in known.locations]
        done.engine = "cached"
        if left:
            choice = self._engine(rows, left, cancellation)
            done.engine, done.engine_reason = choice
            if choice.engine == "spark":
                tables.append(self._scan(read, rows, left, done, cancellation))
            else:
                tables += self._read(read, rows, left, done, cancellation)
        with_rows = [table for table in tables if table.num_rows]
        result = with_rows[0] if len(with_rows) == 1 else pa.concat_tables([rows.empty, *with_rows])
        if len(with_rows) > 1:
            result = group_partials(read, result)
        if left:
            merged = HistoryResult(
                frozenset(versions), result, dict(done.cuboids), done.rows_read, done.rows_pruned
            )
            self._results.keep(statement, merged)
        _add(stats, done)
        return result

    def _read(
        self,
        read: CubeRead,
        rows: HistoryRows,
        segments: Sequence[SegmentRecord],
        stats: ReadStats,
        cancellation: Cancellation,
    ) -> list[pa.Table]:
        if can_be_coded(read, rows.needed):
            done = ReadStats(read.cube)
            try:
                tables = self._read_coded(read, rows, segments, done, cancellation)
            except NotCoded:
                pass
            else:
                _add(stats, done)
                return tables
        collected = CollectedRows(read, rows)
        choices = self._known_choices(rows)

        def read_segment(segment: SegmentRecord) -> tuple[CuboidRows, ReadStats]:
            done = ReadStats(read.cube)
            choice = self._choose(rows, segment, choices)
            found = self._files.use(*(segment, choice.location, choice.cuboid, done), rows.of, verified=True)
            _count(done, choice.cuboid, found.candidate_rows)
            return found, done

        for found, done in self._beside(read_segment, segments, cancellation, alone=rows.has_sketches):
            _add(stats, done)
            collected.add_rows(found)
        self._keep_choices(rows, choices)
        return [collected.table()]

    def _engine(
        self, rows: HistoryRows, segments: Sequence[SegmentRecord], cancellation: Cancellation
    ) -> EngineChoice:
        """Choose the engine that reads the segments. Raises DefinitionError and TooLarge."""
        wish = cancellation.engine
        if not self._rules.needs_size(wish):
            return self._rules.choose(wish, None)
        files = all_rows = size_bytes = 0
        for version in self._versions(rows, segments, cancellation):
            files += len(version.cuboid.files)
            all_rows += version.cuboid.rows
            size_bytes += sum(file.bytes for file in version.cuboid.files)
        return self._rules.choose(wish, HistorySize(files, all_rows, size_bytes))

    def _scan(
        self,
        read: CubeRead,
        rows: HistoryRows,
        segments: Sequence[SegmentRecord],
        stats: ReadStats,
        cancellation: Cancellation,
    ) -> pa.Table:
        """Have the other engine read the segments."""
        assert self._scans is not None, "the rules say so"
        versions = self._versions(rows, segments, cancellation)
        table = self._scans.read(read, versions, cancellation)
        self._count_whole(versions, stats)
        return table

    def _versions(
        self, rows: HistoryRows, segments: Sequence[SegmentRecord], cancellation: Cancellation
    ) -> list[ScannedVersion]:
        choices = self._known_choices(rows)

        def choose(segment: SegmentRecord) -> ScannedVersion:
            choice = self._choose(rows, segment, choices)
            return ScannedVersion(segment, choice.location, choice.cuboid)

        versions = list(self._beside(choose, segments, cancellation))
        self._keep_choices(rows, choices)
        return versions

    def _count_whole(self, versions: Sequence[ScannedVersion], stats: ReadStats) -> None:
        """Count all rows as read: what Spark rules out by statistics is not known here."""
        for version in versions:
            _count(stats, version.cuboid, version.cuboid.rows)
            stats.files_remote += len(version.cuboid.files)

    def _read_coded(
        self,
        read: CubeRead,
        rows: HistoryRows,
        segments: Sequence[SegmentRecord],
        stats: ReadStats,
        cancellation: Cancellation,
    ) -> list[pa.Table]:
        """Read by codes. Raises NotCoded where the rows have to be grouped in another way."""
        coded, collected = CodedRead(read, rows, self._memory), CollectedRows(read, rows)
        choices = self._known_choices(rows)
        missing: list[SegmentRecord] = []
        all_rows = 0
        for segment in segments:
            choice = choices.get(_location(segment))
            if choice is None or not coded.add_known(choice):
                missing.append(segment)
                continue
            self._files.count(choice.location, choice.cuboid, stats)
            _count_cuboid(stats, choice.cuboid)
            all_rows += choice.cuboid.rows

        def load(segment: SegmentRecord) -> tuple[Choice, LoadedFiles, ReadStats]:
            done = ReadStats(read.cube)
            choice = self._choose(rows, segment, choices)

            def load_files(files: Sequence[HistoryFile]) -> LoadedFiles:
                return coded.load(choice, files)

            loaded = self._files.use(
                *(segment, choice.location, choice.cuboid, done), load_files, verified=True
            )
            return choice, loaded, done

        for choice, loaded, done in self._beside(load, missing, cancellation):
            coded.add_files(loaded.files)
            if loaded.others is not None:
                stats.rows_read += loaded.others.candidate_rows
                collected.add_rows(loaded.others)
            _count_cuboid(done, choice.cuboid)
            _add(stats, done)
            all_rows += choice.cuboid.rows
        if missing:
            coded.keep()
            self._keep_choices(rows, choices)
        tables = coded.tables()
        stats.rows_read += coded.rows_read
        stats.rows_pruned = all_rows - stats.rows_read
        return [*tables, collected.table()] if missing else tables

    def estimate(
        self, read: CubeRead, segments: Sequence[SegmentRecord], stats: ReadStats, cancellation: Cancellation
    ) -> None:
        rows = HistoryRows(read, self._files.footers, self._columns)
        left = self._without_results(read, rows, segments)
        stats.engine = "cached"
        if left:
            try:
                stats.engine, stats.engine_reason = self._engine(rows, left, cancellation)
            except (DefinitionError, TooLarge) as error:
                stats.engine, stats.engine_reason = "refused", str(error)
        if stats.engine in ("spark", "refused"):  # footers of all those files are not read for an estimate
            self._count_whole(self._versions(rows, segments, cancellation), stats)
            return
        choices = self._known_choices(rows)

        def look(segment: SegmentRecord) -> ReadStats:
            done = ReadStats(read.cube)
            choice = self._choose(rows, segment, choices)
            candidate_rows = self._files.use(
                *(segment, choice.location, choice.cuboid, done), rows.candidate_rows, verified=False
            )
            _count(done, choice.cuboid, candidate_rows)
            return done

        for done in self._beside(look, segments, cancellation):
            _add(stats, done)
        self._keep_choices(rows, choices)

    def _without_results(
        self, read: CubeRead, rows: HistoryRows, segments: Sequence[SegmentRecord]
    ) -> list[SegmentRecord]:
        """Return the segments that no kept result covers."""
        versions = {_location(segment): segment for segment in segments}
        known = self._results.find(statement_of(read, rows.empty.schema), versions.keys())
        covered = frozenset() if known is None else known.locations
        return [segment for location, segment in versions.items() if location not in covered]

    def _beside(
        self,
        call: Callable[[SegmentRecord], T],
        segments: Sequence[SegmentRecord],
        cancellation: Cancellation,
        *,
        alone: bool = False,
    ) -> Iterator[T]:
        """Yield the result of `call` for each segment, in order.

        Args:
            alone: True if the segments are read one after the other, so that no more than one segment's
                sketches are in memory; a sketch takes kilobytes.
        """
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

    def _choose(self, rows: HistoryRows, segment: SegmentRecord, choices: dict[str, Choice]) -> Choice:
        """Return the choice for the segment from `choices`, or add one that the manifest gives."""
        location = _location(segment)
        known = choices.get(location)
        if known is None:
            known = Choice.of(location, choose_cuboid(self._files.manifest(location, segment), rows.needed))
            choices[location] = known
        return known

    def _known_choices(self, rows: HistoryRows) -> dict[str, Choice]:
        """Return what reads of the same dimensions have chosen, by location."""
        return dict(self._choices.find(rows.choice_key) or {})

    def _keep_choices(self, rows: HistoryRows, choices: dict[str, Choice]) -> None:
        self._choices.keep(rows.choice_key, choices, _CHOICE_BYTES * len(choices))

    def _count_files(self, rows: HistoryRows, segments: Sequence[SegmentRecord], stats: ReadStats) -> None:
        choices = self._known_choices(rows)
        for segment in segments:
            choice = self._choose(rows, segment, choices)
            self._files.count(choice.location, choice.cuboid, stats)


def _location(segment: SegmentRecord) -> str:
    if segment.location is None:
        raise Corrupted(
            f"{segment.cube}/{segment.name} is at version {segment.version} without a location",
            action="queue the segment to be built again",
        )
    return segment.location


def _count(stats: ReadStats, cuboid: CuboidEntry, candidate_rows: int) -> None:
    """Count the rows that statistics do not rule out as read, and the others as pruned."""
    _count_cuboid(stats, cuboid)
    stats.rows_read += candidate_rows
    stats.rows_pruned += cuboid.rows - candidate_rows


def _count_cuboid(stats: ReadStats, cuboid: CuboidEntry) -> None:
    stats.cuboids[cuboid.name] = stats.cuboids.get(cuboid.name, 0) + 1


def _add(stats: ReadStats, segment: ReadStats) -> None:
    for name, number in segment.cuboids.items():
        stats.cuboids[name] = stats.cuboids.get(name, 0) + number
    stats.rows_read += segment.rows_read
    stats.rows_pruned += segment.rows_pruned
    if segment.engine:
        stats.engine, stats.engine_reason = segment.engine, segment.engine_reason
    stats.files_cached += segment.files_cached
    stats.files_remote += segment.files_remote


def choose_cuboid(manifest: HistoryManifest, needed: Collection[str]) -> CuboidEntry:
    """Return the one with the fewest rows that holds every dimension that is read or filtered by."""
    cuboid = smallest_covering(manifest.cuboids, needed)
    if cuboid is None:
        raise Corrupted(
            f"history of {manifest.cube}/{manifest.segment} v{manifest.version} has no fitting cuboid",
            expected=f"one with {', '.join(sorted(needed))}",
            found=", ".join(cuboid.name for cuboid in manifest.cuboids) or "none",
            action="queue the segment to be built again",
        )
    return cuboid
