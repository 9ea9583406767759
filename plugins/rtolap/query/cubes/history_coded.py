"""A read over files in memory: finds the files, loads missing ones, and scans them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rtolap.columnar.schema import select_partials
from rtolap.query.cubes import history_rows
from rtolap.query.cubes.history_choices import Choice
from rtolap.query.cubes.history_files import HistoryFile
from rtolap.query.cubes.history_memory import FileMemory
from rtolap.query.cubes.history_partials import HistoryPartials
from rtolap.query.cubes.history_rows import HistoryRows
from rtolap.query.plan import CubeRead
from rtolap.scan.columns import CodedFile
from rtolap.scan.group_scan import GroupScan

PENDING_BYTES_MAX = 64 << 20  # of files that wait until they are scanned
_SHARE_OF_MEMORY = 2  # the part of the memory, as a divisor, that one statement may load
_DIMENSION_BYTES, _MEASURE_BYTES = 2, 8  # of a row, at most


class LoadedFiles(NamedTuple):
    """A version: its files in memory, and those that have to be read piece by piece."""

    files: list[CodedFile]
    others: list[HistoryFile]


class CodedRead:
    """A read of the files in memory, which loads the missing ones.

    Any number of threads may call `load`; only one thread may call the other methods. All methods but `load`
    raise NotCoded.
    """

    def __init__(
        self, read: CubeRead, rows: HistoryRows, memory: FileMemory, partials: HistoryPartials
    ) -> None:
        """Begin a read. Groups that become too many are added to `partials`, the others by `finish`."""
        self._read = read
        self._partials = partials
        self._rows = rows
        self._memory = memory
        self._dictionaries = memory.dictionaries(read.schema, sorted(rows.needed))
        self._ruled_out = rows.ruled_out()
        self._room_bytes = memory.bytes_max // _SHARE_OF_MEMORY
        self._row_bytes = _DIMENSION_BYTES * len(self._dictionaries) + _MEASURE_BYTES * len(read.partials)
        self._pending: list[CodedFile] = []
        self._pending_bytes = 0
        self._pending_bytes_max = min(PENDING_BYTES_MAX, partials.bytes_max)
        self._scan: GroupScan | None = None
        self.rows_read = 0

    def add_known(self, choice: Choice) -> bool:
        """Add the files of a version. Return False, and add nothing, if one of them has to be read first."""
        files = []
        for key in choice.keys:
            if key in self._ruled_out:
                continue
            file = self._memory.find(key, self._dictionaries, self._read.partials)
            if file is None or not self._is_whole(file):
                return False
            files.append(file)
        self.add_files(files)
        return True

    def load(self, choice: Choice, files: Sequence[HistoryFile]) -> LoadedFiles:
        """Load the columns of files. Raises OSError and pyarrow.ArrowException."""
        loaded: list[CodedFile] = []
        others: list[HistoryFile] = []
        for key, file in zip(choice.keys, files, strict=True):
            candidate_rows = self._rows.file_candidate_rows(file)
            if not candidate_rows:
                self._ruled_out.add(key)
                continue
            coded = self._memory.find(key, self._dictionaries, self._read.partials)
            if coded is None and self._has_room(file, candidate_rows):
                coded = self._memory.load(
                    key, file, self._read.schema, self._dictionaries, self._read.partials
                )
            if coded is not None and self._is_whole(coded):
                loaded.append(coded)
            else:
                others.append(file)
        return LoadedFiles(loaded, others)

    def add_files(self, files: Sequence[CodedFile]) -> None:
        for file in files:
            self._pending.append(file)
            self._pending_bytes += file.rows * self._row_bytes
        if self._pending_bytes > self._pending_bytes_max:
            self._look()

    def keep(self) -> None:
        """Remember what loading has found out, beside the files."""
        self._memory.keep(self._read.schema, self._dictionaries)
        self._rows.keep_ruled_out(self._ruled_out)

    def finish(self) -> None:
        """Add the groups of all files that were added to the partials."""
        self._look()
        self._flush()

    def _look(self) -> None:
        if self._scan is not None and self._pending and not self._scan.is_current:
            self._flush()
        if self._scan is None and self._pending:
            read = self._read
            partials = select_partials(read.schema, read.partials)
            self._scan = GroupScan(read.dimensions, partials, read.filter, self._dictionaries)
        if self._scan is None:
            return
        for file in self._pending:
            self.rows_read += self._scan.add_file(file)
        self._pending, self._pending_bytes = [], 0
        if self._scan.size_bytes > self._partials.bytes_max:  # at most by what was pending
            self._flush()

    def _flush(self) -> None:
        if self._scan is not None:
            scan, self._scan = self._scan, None
            self._partials.add_table(scan.table(), is_grouped=True)

    def _is_whole(self, file: CodedFile) -> bool:
        """Return True if all the read's columns have a form in memory."""
        return not (file.uncoded and file.uncoded.intersection((*self._dictionaries, *self._read.partials)))

    def _has_room(self, file: HistoryFile, candidate_rows: int) -> bool:
        """Return True if the file is to be loaded, and reserve its room.

        While there is room, small files are loaded, and larger ones if most of their rows are read.
        """
        rows = self._rows.rows_if_whole(file)
        if rows is None:
            return False
        size_bytes = rows * self._row_bytes
        if size_bytes > self._room_bytes or (rows > history_rows.SMALL_ROWS and 2 * candidate_rows < rows):
            return False
        self._room_bytes -= size_bytes
        return True
