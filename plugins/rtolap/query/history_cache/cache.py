"""The state of every copy: what statements may read, and how many bytes that is. No thread of its own."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rtolap.base.transitions import step
from rtolap.query.history_cache.folder import CacheFolder, FileIdentity
from rtolap.query.history_cache.placement import CacheFile
from rtolap.query.history_cache.states import FILE_TRANSITIONS, Eviction, FileEvent, FileState

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Copy:
    """A copy of a history file on the local disk.

    Attributes:
        leases: number of statements that read the copy now.
        verified: identity of the file when its checksum was found right; None: not checked by this process.
    """

    file: CacheFile
    state: FileState = FileState.REMOTE
    leases: int = 0
    verified: FileIdentity | None = None


class HistoryCache:
    """The copies of history on disk. It is thread-safe. Paths that it does not know are REMOTE."""

    def __init__(self, folder: CacheFolder) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._copies: dict[str, _Copy] = {}
        self._bytes: Counter[FileState] = Counter()
        self._files: Counter[FileState] = Counter()
        self.evicted: Counter[Eviction] = Counter()

    # What statements call

    @contextmanager
    def leases(self, paths: Sequence[str]) -> Iterator[list[CacheFile | None]]:
        """Yield the copies of these paths, None where there is no whole one; they stay until the end."""
        with self._lock:
            leased = [copy for path in paths if (copy := self._copies.get(path)) and _is_readable(copy)]
            for copy in leased:
                copy.leases += 1
        try:
            whole = {copy.file.path: copy.file for copy in leased if self._is_whole(copy)}
            yield [whole.get(path) for path in paths]
        finally:
            with self._lock:
                for copy in leased:
                    copy.leases -= 1

    def read(self, path: str) -> bytes | None:
        """Return all bytes of a small copy; None if there is no complete one."""
        with self.leases([path]) as (file,):
            if file is None:
                return None
            try:
                return self.folder.path(file).read_bytes()
            except OSError:
                self.check_again([file])
                return None

    def check_again(self, files: Sequence[CacheFile]) -> None:
        """Take the checksums of copies that were read with an error: damaged ones go."""
        for file in files:
            with self._lock:
                copy = self._copies.get(file.path)
            if copy is not None:
                copy.verified = None
                self._is_whole(copy)

    # What the keeper calls

    def state(self, path: str) -> FileState:
        with self._lock:
            copy = self._copies.get(path)
            return FileState.REMOTE if copy is None else copy.state

    def adopt(self, file: CacheFile) -> None:
        with self._lock:
            self._take(self._known(file), FileEvent.ADOPT)

    def begin(self, file: CacheFile) -> None:
        """Begin to copy a file. From now on its bytes count."""
        with self._lock:
            self._take(self._known(file), FileEvent.COPY)

    def copied(self, file: CacheFile, identity: FileIdentity) -> None:
        with self._lock:
            copy = self._copies[file.path]
            copy.verified = identity
            self._take(copy, FileEvent.COPIED)

    def failed(self, file: CacheFile) -> None:
        with self._lock:
            self._take(self._copies[file.path], FileEvent.FAILED)

    def evict(self, path: str, reason: Eviction) -> None:
        with self._lock:
            self._evict(self._copies[path], reason)

    def sweep(self) -> bool:
        """Remove what is LEAVING and not read any more. True if something was removed."""
        with self._lock:
            idle = [c for c in self._copies.values() if c.state is FileState.LEAVING and c.leases == 0]
        for copy in idle:  # nobody gets a lease of these any more
            self.folder.remove(copy.file)
            with self._lock:
                self._take(copy, FileEvent.REMOVED)
                del self._copies[copy.file.path]
        return bool(idle)

    # What is so at this moment

    def files(self, *states: FileState) -> list[CacheFile]:
        with self._lock:
            return [copy.file for copy in self._copies.values() if copy.state in states]

    def bytes_in(self, *states: FileState) -> int:
        with self._lock:
            return sum(self._bytes[state] for state in states)

    def count_in(self, *states: FileState) -> int:
        with self._lock:
            return sum(self._files[state] for state in states)

    def counts(self) -> dict[FileState, tuple[int, int]]:
        """Return files and bytes by state, of what is on the disk."""
        with self._lock:
            return {
                state: (self._files[state], self._bytes[state])
                for state in FileState
                if state is not FileState.REMOTE
            }

    def _known(self, file: CacheFile) -> _Copy:
        return self._copies.setdefault(file.path, _Copy(file))

    def _take(self, copy: _Copy, event: FileEvent) -> None:
        before = copy.state
        copy.state = step(FILE_TRANSITIONS, before, event, subject=copy.file.path)
        self._bytes[before] -= copy.file.bytes
        self._bytes[copy.state] += copy.file.bytes
        self._files[before] -= 1
        self._files[copy.state] += 1

    def _evict(self, copy: _Copy, reason: Eviction) -> None:
        if copy.state is FileState.CACHED:
            self.evicted[reason] += 1
        self._take(copy, FileEvent.EVICT)

    def _is_whole(self, copy: _Copy) -> bool:
        """Return True if the copy's checksum is right, and drop the copy if it is damaged.

        The checksum is computed if this process has not yet done so, or if the file was written since.
        """
        try:
            identity = self.folder.identity(copy.file)
            if identity == copy.verified:
                return True
            whole = self.folder.is_whole(copy.file)
        except OSError as error:
            log.warning("the copy of %s cannot be read: %s", copy.file.path, error)
            whole = False
        with self._lock:
            if whole:
                copy.verified = identity
            elif copy.state is FileState.CACHED:
                log.warning("the copy of %s is damaged: it is read from the store", copy.file.path)
                self._evict(copy, Eviction.DAMAGED)
        return whole


def _is_readable(copy: _Copy) -> bool:
    return copy.state is FileState.CACHED
