"""The parts of an open tablet (lock, log, state, files), and the few ways to change it. `tablet` is its face.

Records are written one at a time, under `writing`; readers wait for none of that: what they see is swapped in
at once, under `seeing`. One compaction at a time, under `compacting`.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rtolap.base.errors import Corrupted
from rtolap.stored.engine.deletes import Deletes, FileId, encode, read
from rtolap.stored.engine.disk import Disk, FolderLock, write_file
from rtolap.stored.engine.files.sorted_file import SortedFile
from rtolap.stored.engine.log import Log
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.engine.state import DeletesFile, Record, Rowset, TabletState, apply
from rtolap.stored.engine.steps import DELETES, deletes_file, rowset_folder
from rtolap.stored.engine.transaction import Transaction

log = logging.getLogger(__name__)

Entry = tuple[str, str, int, bytes]


class Core:
    """The parts of a tablet. `state`, `files` and `deletes` change together.

    A thread that reads several of them holds `seeing`.

    Attributes:
        begun: the transactions that are being loaded, by id.
    """

    def __init__(
        self,
        root: Path,
        disk: Disk,
        settings: TabletSettings,
        folder_lock: FolderLock,
        tablet_log: Log,
        state: TabletState,
    ) -> None:
        self.root, self.disk, self.settings = root, disk, settings
        self.folder_lock, self.log, self.state = folder_lock, tablet_log, state
        self.files = RowsetFiles(disk, root)
        self.deletes = Deletes()
        self.writing, self.seeing, self.compacting = threading.Lock(), threading.Lock(), threading.Lock()
        self.begun: dict[int, Transaction] = {}
        for meta in state.deletes:
            self.deletes.load(read(deletes_file(root, meta.name), meta))
        for rowset in state.rowsets:
            self.files.open_all(rowset)

    def append(self, record: Record, attempted: str) -> None:
        """Append a record that changes nothing but the state."""
        self.log.append(record, attempted)
        with self.seeing:
            self.state = apply(self.state, record)

    def verify(self, files: Iterable[SortedFile]) -> None:
        """Verify files again that are open, and pinned meanwhile.

        Corrupted where a byte has changed since, or can no longer be read. The tablet is stopped then:
        whoever opens it again finds the damage, and another replica has the rows.
        """
        with self._stopped_by_damage():
            for file in files:
                file.verify()

    def verify_records(self) -> int:
        """Read the log and the deletes again, as opening does, and return their bytes. Corrupted as above."""
        with self.writing, self._stopped_by_damage():
            self.log.check_running("verifying the log")
            for meta in self.state.deletes:
                read(deletes_file(self.root, meta.name), meta)
            return self.log.verify() + sum(meta.bytes for meta in self.state.deletes)

    @contextmanager
    def _stopped_by_damage(self) -> Iterator[None]:
        try:
            yield
        except Corrupted as error:
            self.log.stop(str(error))
            raise

    def write_deletes(self, name: str, entries: list[Entry]) -> DeletesFile:
        """Run steps 4 and 11. Raises OSError of the disk."""
        data = encode(entries)
        write_file(self.disk, deletes_file(self.root, name), data)
        self.disk.sync_folder(self.root / DELETES)
        return DeletesFile(name, len(data))

    def move(self, source: Path, target: Path) -> None:
        """Carry out a move that the log has recorded: if it fails, the tablet stops; recovery does it."""
        try:
            self.disk.rename(source, target)
            self.disk.sync_folder(source.parent)
            self.disk.sync_folder(target.parent)
        except OSError as error:
            self.log.stop(f"{source} was not moved to {target}: {error.strerror}")
            self.log.check_running(f"moving {source}")

    def remove(self, path: Path) -> None:
        """Remove a file or folder that nothing uses any more; one that the disk fails to remove is left to
        recovery.
        """
        self.files.remove(path)

    def shorten_log(self) -> None:
        if self.log.is_long:
            self.log.begin_again(self.state)  # steps 15 and 16


class RowsetFiles:
    """The open files, who has them pinned, and the folders that can be removed once nobody has.

    For several threads at once.
    """

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk, self._root = disk, root
        self._lock = threading.Lock()
        self._open: dict[FileId, SortedFile] = {}
        self._pins: Counter[str] = Counter()
        self._retired: set[str] = set()

    def put(self, rowset: str, files: Iterable[tuple[str, SortedFile]]) -> None:
        """Put in the files of a rowset, which are in its folder by now, wherever they were opened."""
        with self._lock:
            for name, file in files:
                file.path = rowset_folder(self._root, rowset) / name
                self._open[rowset, name] = file

    def open_all(self, rowset: Rowset) -> None:
        """Open all files, with every byte verified. Raises Corrupted."""
        folder = rowset_folder(self._root, rowset.id)
        self.put(rowset.id, [(meta.name, SortedFile(folder / meta.name)) for meta in rowset.files])

    def of(self, rowset: Rowset) -> list[tuple[FileId, SortedFile]]:
        with self._lock:
            return [((rowset.id, meta.name), self._open[rowset.id, meta.name]) for meta in rowset.files]

    def opened(self, rowset: Rowset) -> list[SortedFile]:
        """Return the files of a rowset, as far as they have not been removed."""
        with self._lock:
            files = [self._open.get((rowset.id, meta.name)) for meta in rowset.files]
        return [file for file in files if file is not None]

    def pin(self, rowsets: Iterable[str]) -> None:
        with self._lock:
            self._pins.update(rowsets)

    def unpin(self, rowsets: Iterable[str]) -> None:
        with self._lock:
            self._pins.subtract(rowsets)
        self.sweep()

    def retire(self, rowsets: Iterable[str]) -> None:
        """Retire rowsets. No version that can be pinned from here on reads them."""
        with self._lock:
            self._retired.update(rowsets)
        self.sweep()

    def remove(self, path: Path) -> None:
        """Remove a path that nobody reads. A path that the disk fails to remove is left to recovery."""
        try:
            self._disk.remove(path)
        except OSError as error:
            log.warning("%s cannot be removed yet: %s", path, error)

    def sweep(self) -> None:
        """Step 14. A path that the disk fails to remove is left to recovery."""
        with self._lock:
            idle = [rowset for rowset in self._retired if not self._pins[rowset]]
            self._retired.difference_update(idle)
            for file in [file for file in self._open if file[0] in idle]:
                del self._open[file]
        for rowset in idle:
            self.remove(rowset_folder(self._root, rowset))
