"""The open files of a tablet, who has them pinned, and the folders that can be removed once nobody has."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from rtolap.stored.engine.deletes import FileId
from rtolap.stored.engine.disk import Disk
from rtolap.stored.engine.files.sorted_file import SortedFile
from rtolap.stored.engine.records import Rowset
from rtolap.stored.engine.steps import rowset_folder

log = logging.getLogger(__name__)


class RowsetFiles:
    """For several threads at once."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk, self._root = disk, root
        self._lock = threading.Lock()
        self._open: dict[FileId, SortedFile] = {}
        self._pins: Counter[str] = Counter()
        self._retired: set[str] = set()

    def put(self, rowset: str, files: Iterable[tuple[str, SortedFile]]) -> None:
        with self._lock:
            for name, file in files:
                self._open[rowset, name] = file

    def open_all(self, rowset: Rowset) -> None:
        """With every byte verified. Raises Corrupted."""
        folder = rowset_folder(self._root, rowset.id)
        self.put(rowset.id, [(meta.name, SortedFile(folder / meta.name)) for meta in rowset.files])

    def of(self, rowset: Rowset) -> list[tuple[FileId, SortedFile]]:
        with self._lock:
            return [((rowset.id, meta.name), self._open[rowset.id, meta.name]) for meta in rowset.files]

    def pin(self, rowsets: Iterable[str]) -> None:
        with self._lock:
            self._pins.update(rowsets)

    def unpin(self, rowsets: Iterable[str]) -> None:
        with self._lock:
            self._pins.subtract(rowsets)
        self.sweep()

    def retire(self, rowsets: Iterable[str]) -> None:
        """No version that can be pinned from here on reads them."""
        with self._lock:
            self._retired.update(rowsets)
        self.sweep()

    def remove(self, path: Path) -> None:
        """Remove a path that nobody reads. One that the disk fails to remove is left to recovery."""
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
