"""A read of history in this process: unit by unit, from the files to the partial rows of the read.

Columns that fit into memory are filtered and grouped there, in dictionary codes. Other columns are read out
of their files piece by piece, and the filter prunes row groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from rtolap.cubes.format.manifest import CuboidEntry
from rtolap.metadata.merging.units import HistoryUnit
from rtolap.query.cancel import Cancellation
from rtolap.query.cubes.history_choices import SEGMENTS_AT_ONCE, Beside, Choice, Choices, ScannedVersion
from rtolap.query.cubes.history_coded import CodedRead, LoadedFiles
from rtolap.query.cubes.history_files import HistoryFile, HistoryFiles
from rtolap.query.cubes.history_memory import FileMemory, can_be_coded
from rtolap.query.cubes.history_partials import HistoryPartials
from rtolap.query.cubes.history_rows import CuboidRows, HistoryRows
from rtolap.query.plan import CubeRead, ReadStats

# Of the bound: files of one segment that are read beside those of others. Decoded they are some times larger.
_SHARE_BESIDE = 8 * SEGMENTS_AT_ONCE

T = TypeVar("T")
AddRows = Callable[[CuboidRows], None]


@dataclass(eq=False)
class LocalRead:
    """A read of units of history. It is used once.

    Attributes:
        with_copies: False if the store's files are read, whatever copies there are.
    """

    read: CubeRead
    rows: HistoryRows
    files: HistoryFiles
    memory: FileMemory
    choices: Choices
    beside: Beside
    cancellation: Cancellation
    with_copies: bool

    @property
    def can_be_coded(self) -> bool:
        return can_be_coded(self.read, self.rows.needed)

    def by_rows(self, units: Sequence[HistoryUnit], partials: HistoryPartials, stats: ReadStats) -> None:
        """Add the rows of the units to the partials. Raises CopiesFailed."""
        versions = self.choices.versions(self.rows, units, self.cancellation)

        def load(version: ScannedVersion, files: Sequence[HistoryFile], add: AddRows) -> int:
            self._add_pieces(files, add)
            return self.rows.candidate_rows(files)

        for version, candidate_rows, done in self._loaded(load, versions, partials):
            count_rows(done, version.cuboid, candidate_rows)
            add_stats(stats, done)

    def by_codes(self, units: Sequence[HistoryUnit], partials: HistoryPartials, stats: ReadStats) -> None:
        """Add the rows of the units to the partials.

        Raises NotCoded where the rows have to be grouped in another way, and CopiesFailed.
        """
        coded = CodedRead(self.read, self.rows, self.memory, partials)
        choices = self.choices.known(self.rows)
        missing: list[HistoryUnit] = []
        all_rows = 0
        for unit in units:
            choice = choices.get(unit.key)
            if choice is None or not coded.add_known(choice):
                missing.append(unit)
                continue
            self.files.count(choice.location, choice.cuboid, stats)
            count_cuboid(stats, choice.cuboid)
            all_rows += choice.cuboid.rows

        def load(version: ScannedVersion, files: Sequence[HistoryFile], add: AddRows) -> LoadedFiles:
            loaded = coded.load(Choice.of(version.location, version.cuboid), files)
            self._add_pieces(loaded.others, add)
            return loaded

        if missing:
            versions = self.choices.versions(self.rows, missing, self.cancellation)
            for version, loaded, done in self._loaded(load, versions, partials):
                coded.add_files(loaded.files)
                stats.rows_read += self.rows.candidate_rows(loaded.others)
                count_cuboid(done, version.cuboid)
                add_stats(stats, done)
                all_rows += version.cuboid.rows
            coded.keep()
        coded.finish()
        stats.rows_read += coded.rows_read
        stats.rows_pruned = all_rows - stats.rows_read

    def _add_pieces(self, files: Sequence[HistoryFile], add: AddRows) -> None:
        for piece in self.rows.pieces(files):
            self.cancellation.check()
            add(piece)

    def _loaded(
        self,
        load: Callable[[ScannedVersion, Sequence[HistoryFile], AddRows], T],
        versions: Sequence[ScannedVersion],
        partials: HistoryPartials,
    ) -> Iterator[tuple[ScannedVersion, T, ReadStats]]:
        """Yield each version, in order, with what `load` has returned for its files, and its statistics.

        Rows that `load` adds are added to the partials: those of large versions as they come, those of small
        ones, which are read beside each other, when all of the version are there. A sketch takes kilobytes,
        so versions with sketches are large.
        """
        is_alone = self.beside.is_alone or self.rows.has_sketches
        beside_bytes_max = -1 if is_alone else partials.bytes_max // _SHARE_BESIDE

        def is_large(version: ScannedVersion) -> bool:
            return sum(file.bytes for file in version.cuboid.files) > beside_bytes_max

        def collect(version: ScannedVersion) -> tuple[ScannedVersion, T, ReadStats, list[CuboidRows]]:
            pieces: list[CuboidRows] = []

            def collected(files: Sequence[HistoryFile]) -> T:
                pieces.clear()  # of copies that could not be read
                return load(version, files, pieces.append)

            result, done = self._use(version, collected, is_streamed=False)
            return version, result, done, pieces

        def stream(version: ScannedVersion) -> tuple[T, ReadStats]:
            def streamed(files: Sequence[HistoryFile]) -> T:
                return load(version, files, partials.add_rows)

            return self._use(version, streamed, is_streamed=True)

        for large, run in groupby(versions, is_large):
            if large:
                for version in run:
                    self.cancellation.check()
                    result, done = stream(version)
                    yield version, result, done
                continue
            for version, result, done, pieces in self.beside.each(collect, list(run), self.cancellation):
                for piece in pieces:
                    partials.add_rows(piece)
                yield version, result, done

    def _use(
        self, version: ScannedVersion, do: Callable[[Sequence[HistoryFile]], T], *, is_streamed: bool
    ) -> tuple[T, ReadStats]:
        done = ReadStats(self.read.cube)
        result = self.files.use(
            *(version.unit, version.location, version.cuboid, done, do),
            verified=True,
            with_copies=self.with_copies,
            is_streamed=is_streamed,
        )
        return result, done


def count_rows(stats: ReadStats, cuboid: CuboidEntry, candidate_rows: int) -> None:
    """Count the rows that statistics do not rule out as read, and the others as pruned."""
    count_cuboid(stats, cuboid)
    stats.rows_read += candidate_rows
    stats.rows_pruned += cuboid.rows - candidate_rows


def count_cuboid(stats: ReadStats, cuboid: CuboidEntry) -> None:
    stats.cuboids[cuboid.name] = stats.cuboids.get(cuboid.name, 0) + 1


def add_stats(stats: ReadStats, more: ReadStats) -> None:
    for name, number in more.cuboids.items():
        stats.cuboids[name] = stats.cuboids.get(name, 0) + number
    stats.rows_read += more.rows_read
    stats.rows_pruned += more.rows_pruned
    stats.spilled_bytes += more.spilled_bytes
    if more.engine:
        stats.engine, stats.engine_reason = more.engine, more.engine_reason
    stats.files_cached += more.files_cached
    stats.files_remote += more.files_remote
