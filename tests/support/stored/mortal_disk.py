"""A disk for tablets that fills up, fails or loses its power in the middle of an operation.

Nothing is synced for real: what a crash may take back is known here and taken back by chance: bytes written
and not synced, names made, renamed or removed whose folder was not synced.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from rtolap.stored.engine.disk import OpenFile, RealDisk
from rtolap.stored.engine.steps import COMPACTING, COMPLETING, DELETES, LOG_PREFIX, PENDING, ROWSETS

_STEP_OF_RECORD = {b"prepared": 3, b"published": 5, b"aborted": 7, b"compacted": 12}
_FAILING = ("create", "write", "append", "make_folder")


class Crash(Exception):
    """The machine has lost its power; the disk takes nothing more."""


class MortalDisk:
    """`die_at` and `fail_at` count operations from 1; `die_in_step` waits for a numbered step.

    `seen` collects the steps that were gone through, `on_operation` is called before each operation with its
    step (None: none of the numbered ones). `recover` ends a crash: then it is as good as new.
    """

    def __init__(self, graveyard: Path, seed: int) -> None:
        self._real = RealDisk()
        self._graveyard = graveyard
        self._graveyard.mkdir(parents=True, exist_ok=True)
        self._buried = itertools.count()
        self._random = random.Random(seed)
        self._undo: list[tuple[set[Path], Callable[[], None]]] = []
        self._unsynced: dict[Path, int] = {}
        self.operations = 0
        self.die_at: int | None = None
        self.die_in_step: int | None = None
        self.fail_at: int | None = None
        self.failed_at = 0  # the operation that failed last
        self.dead = False
        self.seen: set[int] = set()
        self.on_operation: Callable[[int | None], None] = lambda step: None

    # The operations

    def create(self, path: Path) -> OpenFile:
        self._operate("create", path)
        existed = path.exists()
        file = _MortalFile(self, path)
        if not existed:
            self._undo.append(({path.parent}, lambda: path.unlink(missing_ok=True)))
        self._unsynced[path] = 0
        return file

    def append(self, path: Path, data: bytes) -> None:
        with path.open("ab") as file:
            done = self._operate("append", path, data)
            file.write(data[:done])
        self._finish(done, data, path)

    def truncate(self, path: Path, length_bytes: int) -> None:
        self._operate("truncate", path)
        os.truncate(path, length_bytes)

    def make_folder(self, path: Path) -> None:
        self._operate("make_folder", path)
        if not path.exists():
            path.mkdir()
            self._undo.append(({path.parent}, lambda: shutil.rmtree(path, ignore_errors=True)))

    def rename(self, source: Path, target: Path) -> None:
        self._operate("rename", source, target=target)
        os.rename(source, target)
        self._undo.append(({source.parent, target.parent}, lambda: _move_back(target, source)))

    def link(self, source: Path, target: Path) -> None:
        self._operate("link", source, target=target)
        os.link(source, target)
        self._undo.append(({target.parent}, lambda: target.unlink(missing_ok=True)))

    def remove(self, path: Path) -> None:
        self._operate("remove", path)
        if path.exists():
            grave = self._graveyard / str(next(self._buried))
            os.rename(path, grave)
            self._undo.append(({path.parent}, lambda: _move_back(grave, path)))

    def sync_folder(self, path: Path) -> None:
        self._operate("sync_folder", path)
        for folders, _ in self._undo:
            folders.discard(path)
        self._undo = [pending for pending in self._undo if pending[0]]

    # Its end

    def recover(self) -> None:
        """Restore power: what was not synced is there or not, each by chance."""
        for _, undo in reversed(self._undo):
            if self._random.random() < 0.5:
                undo()
        for path, synced_bytes in self._unsynced.items():
            if path.exists():
                length = self._random.randint(synced_bytes, max(synced_bytes, path.stat().st_size))
                os.truncate(path, length)
        self._undo, self._unsynced = [], {}
        self.dead, self.die_at, self.die_in_step, self.fail_at = False, None, None, None
        self.operations = 0

    def _operate(self, name: str, path: Path, data: bytes = b"", target: Path | None = None) -> int:
        """Return how much of `data` is to be written; dies or fails before anything else happens."""
        if self.dead:
            raise Crash("the disk has no power")
        step = _step(name, path, data, target)
        if step is not None:
            self.seen.add(step)
        self.on_operation(step)
        self.operations += 1
        dies = self.operations == self.die_at or (step is not None and step == self.die_in_step)
        fails = self.operations == self.fail_at and name in _FAILING
        if fails:
            self.failed_at = self.operations
        if self.fail_at is not None and self.operations >= self.fail_at and not fails:
            self.fail_at = self.operations + 1  # the next one that can fail does
        if not dies and not fails:
            return len(data)
        if dies:
            self.dead = True
        if name in ("append", "write"):
            return self._random.randint(0, len(data))
        if fails:
            self.fail_at = None
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        raise Crash(f"{name} {path} (step {step})")

    def _finish(self, done: int, data: bytes, path: Path) -> None:
        if self.dead:
            raise Crash(f"{done} of {len(data)} bytes written to {path}")
        if self.fail_at == self.operations:
            self.fail_at = None
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


class _MortalFile:
    def __init__(self, disk: MortalDisk, path: Path) -> None:
        self._disk, self._path = disk, path
        self._file = path.open("wb", buffering=0)

    def write(self, data: bytes | memoryview) -> None:
        raw = bytes(data)
        done = self._disk._operate("write", self._path, raw)
        self._file.write(raw[:done])
        self._disk._finish(done, raw, self._path)

    def sync(self) -> None:
        self._disk._operate("sync", self._path)
        self._disk._unsynced.pop(self._path, None)

    def close(self) -> None:
        self._file.close()


def _move_back(source: Path, target: Path) -> None:
    if source.exists() and not target.exists() and target.parent.exists():
        os.rename(source, target)


def _step(name: str, path: Path, data: bytes, target: Path | None) -> int | None:
    """Return the number in `rtolap.stored.engine.steps` that an operation belongs to."""
    parts = path.parts
    if path.name.startswith(LOG_PREFIX):
        if name == "append":
            return next((step for tag, step in _STEP_OF_RECORD.items() if tag in data[:64]), None)
        return 16 if name == "remove" else 15
    if DELETES in parts:
        if name == "remove":
            return None
        return 11 if path.name.startswith("c") else 4
    folders = ((PENDING, 1, 2, 6), (COMPACTING, 9, 10, 13), (COMPLETING, 17, 18, 6))
    for folder, write, sync, move in folders:
        if folder in parts:
            if name == "rename":
                return move
            if name == "remove":
                return 8 if folder == PENDING else None
            return sync if name == "sync_folder" else write
    return 14 if ROWSETS in parts and name == "remove" else None
