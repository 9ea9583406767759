"""History is READY versions in the object store. The engine that reads them is a seam.

Versions are read by units: merged sets, and versions by themselves (`metadata.merging`).

`EmbeddedHistory` reads the smallest cuboid that has the dimensions that are read and filtered by. Columns
that fit into memory are filtered and grouped there, in dictionary codes. Other columns are read out of their
files, and the filter prunes row groups. Results of statements are cached.

Where a Spark service is declared, large reads are made by it (`LargeScans`) instead of here; its results are
cached as well.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from cachetools import LRUCache

from rtolap.base.errors import DefinitionError, TooLarge
from rtolap.metadata.merging.units import HistoryUnit, history_units
from rtolap.metadata.records import SegmentRecord
from rtolap.object_store.store import ObjectStore
from rtolap.query.cancel import Cancellation
from rtolap.query.cubes import history_memory, history_results, history_rows
from rtolap.query.cubes.history_choices import Beside, Choices, ScannedVersion
from rtolap.query.cubes.history_files import CopiesFailed, HistoryFiles
from rtolap.query.cubes.history_local import LocalRead, add_stats, count_rows
from rtolap.query.cubes.history_memory import FileMemory
from rtolap.query.cubes.history_partials import HistoryPartials, ReadRoom
from rtolap.query.cubes.history_results import HistoryResult, HistoryResults, statement_of
from rtolap.query.cubes.history_rows import FileColumns, HistoryRows
from rtolap.query.engine_choice import EngineChoice, EngineRules, HistorySize
from rtolap.query.history_cache.cache import HistoryCache
from rtolap.query.memory_budget import Account
from rtolap.query.plan import CubeRead, ReadStats
from rtolap.query.spills.folder import Spills
from rtolap.query.spills.tables import SpilledTable
from rtolap.scan.columns import NotCoded

STATEMENT_BYTES_MAX = 512 << 20
UNITS_MAX = 64  # reads whose units are remembered, as many as plans are


@dataclass(frozen=True)
class MemoryBounds:
    """The bounds of the memory that history takes.

    Attributes:
        file_bytes: for columns of files in dictionary codes.
        column_bytes: for columns that have no such form.
        result_bytes: for results of statements.
        statement_bytes: for partial rows that one statement merges; more of them are spilled.
    """

    file_bytes: int = history_memory.BYTES_MAX
    column_bytes: int = history_rows.COLUMN_BYTES_MAX
    result_bytes: int = history_results.BYTES_MAX
    statement_bytes: int = STATEMENT_BYTES_MAX


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
        self,
        read: CubeRead,
        segments: Sequence[SegmentRecord],
        stats: ReadStats,
        cancellation: Cancellation,
        account: Account,
    ) -> pa.Table | SpilledTable:
        """Return plain partials of the rows in the segments' versions that pass the read's filter.

        A group has one row, unless its sums may overflow or there are more rows than memory takes. A table
        that was spilled is not sealed yet. The statistics are added to `stats`.

        Args:
            account: where memory is reserved while rows are merged.

        Raises Corrupted for a manifest or file that is missing or damaged, Unavailable when the object store
        does not answer, OverBudget for rows that fit nowhere, and TooLittleDisk.
        """
        ...

    def estimate(
        self, read: CubeRead, segments: Sequence[SegmentRecord], stats: ReadStats, cancellation: Cancellation
    ) -> None:
        """Fill in `stats` as `read` would, from manifests and statistics. No row is read."""
        ...

    def close(self) -> None: ...


class EmbeddedHistory:
    """History in this process. It is thread-safe. Segments of a remote store are read beside each other."""

    def __init__(
        self,
        store: ObjectStore,
        cache: HistoryCache | None = None,
        bounds: MemoryBounds = MemoryBounds(),
        scans: LargeScans | None = None,
        rules: EngineRules = EngineRules(),
        spills: Spills | None = None,
    ) -> None:
        """Open the history of the store.

        Args:
            cache: where copies of the store's files may be found; None: nowhere.
            scans: the engine of large reads, which is closed with the history; None: all reads are made here.
            rules: the rules by which the engine of a read is chosen.
            spills: where rows go that a statement's memory does not take; None: such a read is refused.
        """
        assert rules.has_spark == (scans is not None), "the rules say what there is"
        self._scans = scans
        self._rules = rules
        self._spills = spills
        self._statement_bytes = bounds.statement_bytes
        self._files = HistoryFiles(store, cache)
        self._columns = FileColumns(self._files.footers, bounds.column_bytes)
        self._memory = FileMemory(self._files.footers, bounds.file_bytes)
        self._results = HistoryResults(bounds.result_bytes)
        self._beside = Beside(is_remote=not store.is_local)
        self._choices = Choices(self._files, self._beside)
        self._units = _Units()

    def close(self) -> None:
        if self._scans is not None:
            self._scans.close()
        self._beside.close()
        if self._spills is not None:
            self._spills.remove_own()

    def read(
        self,
        read: CubeRead,
        segments: Sequence[SegmentRecord],
        stats: ReadStats,
        cancellation: Cancellation,
        account: Account,
    ) -> pa.Table | SpilledTable:
        room = ReadRoom(account, self._statement_bytes, self._spills)
        with_copies = by_codes = True
        while True:  # each of them fails once
            try:
                return self._attempt(read, segments, stats, cancellation, room, with_copies, by_codes)
            except CopiesFailed:
                with_copies = False
            except NotCoded:
                by_codes = False

    def _attempt(
        self,
        read: CubeRead,
        segments: Sequence[SegmentRecord],
        stats: ReadStats,
        cancellation: Cancellation,
        room: ReadRoom,
        with_copies: bool,
        by_codes: bool,
    ) -> pa.Table | SpilledTable:
        """Read the segments. Raises CopiesFailed and NotCoded for what cannot be read so."""
        rows = HistoryRows(read, self._files.footers, self._columns)
        partials = HistoryPartials(read, rows, room)
        statement = statement_of(read, rows.empty.schema)
        units = self._units.of(segments)
        by_location = {unit.location: unit for unit in units}
        known = self._results.find(statement, by_location.keys())
        done = ReadStats(read.cube, engine="cached")
        left = units
        try:
            if known is not None:
                partials.add_table(known.table, is_grouped=True)
                done.cuboids = dict(known.cuboids)
                done.rows_read, done.rows_pruned = known.rows_read, known.rows_pruned
                covered = [by_location[location] for location in sorted(known.locations)]
                self._choices.count_files(rows, covered, done)
                left = [unit for location, unit in by_location.items() if location not in known.locations]
            if left:
                done.engine, done.engine_reason = self._engine(rows, left, cancellation)
                if done.engine == "spark":
                    partials.add_table(self._scan(read, rows, left, done, cancellation), is_grouped=True)
                else:
                    local = LocalRead(
                        *(read, rows, self._files, self._memory, self._choices, self._beside, cancellation),
                        with_copies=with_copies,
                    )
                    add = local.by_codes if by_codes and local.can_be_coded else local.by_rows
                    add(left, partials, done)
            result = partials.finish()
        finally:
            partials.drop()
        done.spilled_bytes = partials.spilled_bytes
        if left and isinstance(result, pa.Table):
            self._results.keep(
                statement,
                HistoryResult(
                    frozenset(by_location), result, dict(done.cuboids), done.rows_read, done.rows_pruned
                ),
            )
        add_stats(stats, done)
        return result

    def _engine(
        self, rows: HistoryRows, units: Sequence[HistoryUnit], cancellation: Cancellation
    ) -> EngineChoice:
        """Choose the engine that reads the units. Raises DefinitionError and TooLarge."""
        wish = cancellation.engine
        if not self._rules.needs_size(wish):
            return self._rules.choose(wish, None)
        files = all_rows = size_bytes = 0
        for version in self._choices.versions(rows, units, cancellation):
            files += len(version.cuboid.files)
            all_rows += version.cuboid.rows
            size_bytes += sum(file.bytes for file in version.cuboid.files)
        return self._rules.choose(wish, HistorySize(files, all_rows, size_bytes))

    def _scan(
        self,
        read: CubeRead,
        rows: HistoryRows,
        units: Sequence[HistoryUnit],
        stats: ReadStats,
        cancellation: Cancellation,
    ) -> pa.Table:
        """Have the other engine read the units."""
        assert self._scans is not None, "the rules say so"
        versions = self._choices.versions(rows, units, cancellation)
        table = self._scans.read(read, versions, cancellation)
        self._count_whole(versions, stats)
        return table

    def _count_whole(self, versions: Sequence[ScannedVersion], stats: ReadStats) -> None:
        """Count all rows as read: what Spark rules out by statistics is not known here."""
        for version in versions:
            count_rows(stats, version.cuboid, version.cuboid.rows)
            stats.files_remote += len(version.cuboid.files)

    def estimate(
        self, read: CubeRead, segments: Sequence[SegmentRecord], stats: ReadStats, cancellation: Cancellation
    ) -> None:
        rows = HistoryRows(read, self._files.footers, self._columns)
        units = self._units.of(segments)
        left = self._without_results(read, rows, units)
        stats.engine = "cached"
        if left:
            try:
                stats.engine, stats.engine_reason = self._engine(rows, left, cancellation)
            except (DefinitionError, TooLarge) as error:
                stats.engine, stats.engine_reason = "refused", str(error)
        if stats.engine in ("spark", "refused"):  # footers of all those files are not read for an estimate
            self._count_whole(self._choices.versions(rows, units, cancellation), stats)
            return

        def look(version: ScannedVersion) -> ReadStats:
            done = ReadStats(read.cube)
            candidate_rows = self._files.use(
                *(version.unit, version.location, version.cuboid, done, rows.candidate_rows),
                verified=False,
            )
            count_rows(done, version.cuboid, candidate_rows)
            return done

        versions = self._choices.versions(rows, units, cancellation)
        for done in self._beside.each(look, versions, cancellation):
            add_stats(stats, done)

    def _without_results(
        self, read: CubeRead, rows: HistoryRows, units: Sequence[HistoryUnit]
    ) -> list[HistoryUnit]:
        """Return the units that no kept result covers."""
        by_location = {unit.location: unit for unit in units}
        known = self._results.find(statement_of(read, rows.empty.schema), by_location.keys())
        covered = frozenset() if known is None else known.locations
        return [unit for location, unit in by_location.items() if location not in covered]


class _Units:
    """The units of the newest reads. Plans give the same records again while nothing has changed.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: LRUCache[int, tuple[Sequence[SegmentRecord], list[HistoryUnit]]] = LRUCache(UNITS_MAX)

    def of(self, segments: Sequence[SegmentRecord]) -> list[HistoryUnit]:
        """Return the units of these records. Records are kept with them, so no others have their id."""
        with self._lock:
            known = self._known.get(id(segments))
        if known is not None:
            return known[1]
        units = history_units(segments)
        with self._lock:
            self._known[id(segments)] = (segments, units)
        return units
