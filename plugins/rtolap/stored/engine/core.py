"""The parts of an open tablet, and the few ways to change it. `tablet` is its face.

Records are written one at a time, under `writing`; readers wait for none of that: what they see is swapped in
at once, under `seeing`. One compaction at a time, under `compacting`.
"""

from __future__ import annotations

import threading
from pathlib import Path

from rtolap.base.errors import Unavailable
from rtolap.stored.engine import log
from rtolap.stored.engine.deletes import Deletes, encode, read
from rtolap.stored.engine.disk import Disk, write_file
from rtolap.stored.engine.lock import FolderLock
from rtolap.stored.engine.open_files import RowsetFiles
from rtolap.stored.engine.records import DeletesFile, Record, TabletState
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.engine.state import apply
from rtolap.stored.engine.steps import DELETES, deletes_file
from rtolap.stored.engine.transaction import Transaction

Entry = tuple[str, str, int, bytes]


class Core:
    """`state`, `files` and `deletes` belong together: whoever reads several of them holds `seeing`.

    begun: transactions that are being loaded
    """

    def __init__(
        self,
        root: Path,
        disk: Disk,
        settings: TabletSettings,
        folder_lock: FolderLock,
        tablet_log: log.Log,
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

    def check_running(self, attempted: str) -> None:
        if self.log.stopped is not None:
            raise Unavailable(
                f"{attempted}: the tablet has stopped", found=self.log.stopped, action="open it again"
            )

    def append(self, record: Record, attempted: str) -> None:
        """A record that changes nothing but the state."""
        self.log.append(record, attempted)
        with self.seeing:
            self.state = apply(self.state, record)

    def write_deletes(self, name: str, entries: list[Entry]) -> DeletesFile:
        """Steps 4 and 11. OSError as the disk raises it."""
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
            self.check_running(f"moving {source}")

    def remove(self, path: Path) -> None:
        """Remove a file or folder that nothing uses any more; one that the disk fails to remove is left to
        recovery.
        """
        self.files.remove(path)

    def shorten_log(self) -> None:
        if self.log.is_long:
            self.log.begin_again(self.state)  # steps 15 and 16
