"""The keeper follows the segment records, and makes the files on disk equal to the placement.

A round does one thing: it removes what must go, or makes one copy. A walk goes through the placement, newest
first, and begins again when READY versions have changed, a copy went, or a failure is due to be tried again.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from rtolap.base.clock import Clock
from rtolap.base.closeable import Closeable
from rtolap.base.errors import Corrupted, DefinitionError, NotFound, RtolapError, Unavailable
from rtolap.cubes.format.history import manifest_path
from rtolap.metadata.records import SegmentRecord
from rtolap.object_store.store import ObjectStore
from rtolap.query.history_cache.cache import HistoryCache
from rtolap.query.history_cache.copy_rate import CopyRate
from rtolap.query.history_cache.placement import (
    CacheFile,
    ReadyVersion,
    Snapshots,
    files_of,
    manifest_of_version,
    newest_first,
    placed,
    ready_versions,
)
from rtolap.query.history_cache.states import Condition, CopyFailure, Eviction, FileState

log = logging.getLogger(__name__)

POLL_S = 1.0  # between looks at the segment records
RETRY_S = 30.0  # after a failure, until it is tried again
FILES_MAX = 100_000  # some 500 bytes of memory each
CHUNK_BYTES = 4 << 20  # of a copy, in one request to the store
DISK_FREE_BYTES_MIN = 512 << 20  # the disk is full for the cache below that: others write there too
_FULL = (errno.ENOSPC, errno.EDQUOT)


class HistoryKeeper(Closeable):
    """`start` runs rounds on a thread; tests call `round` themselves. Only one of both."""

    def __init__(
        self,
        cache: HistoryCache,
        store: ObjectStore,
        snapshots: Callable[[], Snapshots],
        clock: Clock,
        *,
        bytes_max: int,
        bytes_per_s: int,
        files_max: int = FILES_MAX,
        disk_free_bytes_min: int = DISK_FREE_BYTES_MIN,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        """Create a keeper that has not started.

        Args:
            snapshots: returns control and records of every cube, in new dicts where something has changed.
        """
        self.bytes_max = bytes_max
        self.condition = Condition.STARTING
        self.found = ""  # what keeps it from placing
        self.failures: Counter[CopyFailure] = Counter()
        self.copied_bytes = 0
        self.cache = cache
        self._store, self._snapshots, self._clock = store, snapshots, clock
        self._files_max, self._disk_free_bytes_min = files_max, disk_free_bytes_min
        self._stop = threading.Event()
        self._rate = CopyRate(bytes_per_s, clock, pause or self._stop.wait)
        self._thread: threading.Thread | None = None
        self._is_scanned = False
        self._seen: Mapping[str, object] = {}
        self._ready: dict[str, list[ReadyVersion]] = {}
        self._looked_at_s: float | None = None
        self._known: dict[str, list[CacheFile]] = {}  # key → files, of what walks have come by
        self._retry_at_s: dict[str, float] = {}  # path or location → when it may be tried again
        self._blocked_until_s = 0.0
        self._walk: Iterator[CacheFile] = iter(())
        self._walked: dict[str, CacheFile] = {}
        self._is_walked = False
        self._pending: CacheFile | None = None  # what the walk has come to and is not copied yet
        self._victims: list[CacheFile] = []  # the oldest is the last

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="history-cache", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the keeper. A copy under way is abandoned at its next chunk."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        self.condition = Condition.CLOSED
        if self._thread is None or not self._thread.is_alive():
            self.cache.folder.unlock()

    def ready(self) -> list[list[ReadyVersion]]:
        """Return READY versions, a list for each cube."""
        return list(self._ready.values())

    def known_files(self) -> dict[str, list[CacheFile]]:
        """Return the files of each version in the placement, by its key."""
        return dict(self._known)

    def round(self) -> bool:
        """Do one step of the work. Return True if there may be more to do at once.

        Errors of the store, the disk and the cluster are not raised.
        """
        if not self._is_scanned and not self._adopt():
            return False
        try:
            changed = self._follow()
        except RtolapError as error:
            return self._block(Condition.CLUSTER_UNAVAILABLE, error)
        try:
            changed |= self.cache.sweep()
        except OSError as error:
            return self._block(Condition.DISK_FAILED, error)
        now_s = self._clock.monotonic_s()
        if due := [name for name, at_s in self._retry_at_s.items() if at_s <= now_s]:
            for name in due:
                del self._retry_at_s[name]
            changed = True
        if changed:
            self._begin_walk()
        if now_s < self._blocked_until_s:
            return False
        return self._place_next()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if not self.round():
                    self._stop.wait(POLL_S)
        except Exception:
            self.condition = Condition.CLOSED
            log.exception("the history cache places nothing any more; statements go on")
            raise

    def _adopt(self) -> bool:
        try:
            if not self.cache.folder.lock():
                self.condition = Condition.TAKEN
                self.found = f"another process has {self.cache.folder.root}"
                return False
            adopted = self.cache.folder.scan(self.bytes_max, self._files_max)
        except OSError as error:
            return self._block(Condition.DISK_FAILED, error)
        for files in adopted.values():
            for file in files:
                self.cache.adopt(file)
        log.info("the copies of %d versions are on the disk already", len(adopted))
        self._is_scanned = True
        return True

    def _follow(self) -> bool:
        """Read the records from time to time, and evict copies of versions that are no longer READY."""
        now_s = self._clock.monotonic_s()
        if self._looked_at_s is not None and now_s - self._looked_at_s < POLL_S:
            return False
        snapshots = self._snapshots()
        self._looked_at_s = now_s
        changed = {
            cube
            for cube in {*snapshots, *self._seen}
            if cube not in snapshots or not _is_same(self._seen.get(cube), snapshots[cube])
        }
        for cube in changed:
            self._ready.pop(cube, None)
            if cube in snapshots:
                self._ready[cube] = ready_versions(*snapshots[cube])
        self._seen = dict(snapshots)
        if changed:
            locations = {version.location for versions in self._ready.values() for version in versions}
            for file in self.cache.files(FileState.CACHED):
                if file.location not in locations:
                    self.cache.evict(file.path, Eviction.REPLACED)
            keys = {version.key for versions in self._ready.values() for version in versions}
            self._known = {key: files for key, files in self._known.items() if key in keys}
        return bool(changed)

    def _begin_walk(self) -> None:
        versions = newest_first(self.ready())
        self._walk = placed(versions, self._files_of, self.bytes_max, self._files_max)
        self._walked = {}
        self._is_walked = False
        self._pending = None
        self._victims = sorted(self.cache.files(FileState.CACHED), key=lambda file: file.order)

    def _place_next(self) -> bool:
        while not self._stop.is_set():
            try:
                file = self._pending or next(self._walk, None)
            except Unavailable as error:
                self.failures[CopyFailure.STORE_UNAVAILABLE] += 1
                self._begin_walk()  # a generator that raised is over
                return self._block(Condition.STORE_UNAVAILABLE, error)
            if file is None:
                return self._end_walk()
            self._walked[file.path] = file
            state = self.cache.state(file.path)
            if state is not FileState.REMOTE or file.path in self._retry_at_s:
                self._pending = None
                continue
            self._pending = file
            try:
                has_room = self._make_room(file)
            except OSError as error:
                return self._block(Condition.DISK_FAILED, error)
            if not has_room:
                self.condition = Condition.WAITING
                self.found = f"statements read what has to make room for {file.path}"
                return False
            self.condition, self.found = Condition.COPYING, ""
            self._pending = None
            return self._copy(file)
        return False

    def _end_walk(self) -> bool:
        """Evict the copies that the walk did not visit, so that the copies are exactly the placement."""
        self.condition, self.found = Condition.PLACED, ""
        if not self._is_walked:
            self._is_walked = True
            for file in self.cache.files(FileState.CACHED):
                if file.path not in self._walked:
                    self.cache.evict(file.path, Eviction.AGE)
            locations = {file.location for file in self._walked.values()}
            self._known = {
                key: files for key, files in self._known.items() if files and files[0].location in locations
            }
        return False

    def _make_room(self, file: CacheFile) -> bool:
        """Evict the oldest copies until the file fits.

        Return False while statements still read an evicted copy.
        """
        staying = (FileState.COPYING, FileState.CACHED)
        while self._is_beyond(file, *staying) and self._victims:
            oldest = self._victims.pop()
            is_older = oldest.path not in self._walked
            if is_older and self.cache.state(oldest.path) is FileState.CACHED:
                self.cache.evict(oldest.path, Eviction.AGE)
        self.cache.sweep()
        return not self._is_beyond(file, *staying, FileState.LEAVING)

    def _is_beyond(self, file: CacheFile, *states: FileState) -> bool:
        is_full = self.cache.bytes_in(*states) + file.bytes > self.bytes_max
        return is_full or self.cache.count_in(*states) >= self._files_max

    def _copy(self, file: CacheFile) -> bool:
        self.cache.begin(file)
        try:
            self._check_free(file)
            identity = self.cache.folder.copy(file, self._chunks(file))
        except OSError as error:
            is_full = error.errno in _FULL
            self.failures[CopyFailure.DISK_FULL if is_full else CopyFailure.DISK_FAILED] += 1
            return self._failed(file, Condition.DISK_FULL if is_full else Condition.DISK_FAILED, error)
        except Unavailable as error:
            self.failures[CopyFailure.STORE_UNAVAILABLE] += 1
            return self._failed(file, Condition.STORE_UNAVAILABLE, error)
        except (Corrupted, NotFound, DefinitionError) as error:
            self._put_off(file.path, error)
            return self._failed(file)
        except _GivenUp:
            return self._failed(file)
        self.cache.copied(file, identity)
        self.copied_bytes += file.bytes
        return True

    def _failed(
        self, file: CacheFile, condition: Condition | None = None, error: Exception | None = None
    ) -> bool:
        """Remove what there is of the copy: a full disk needs the room at once."""
        self.cache.failed(file)
        self._begin_walk()
        try:
            self.cache.sweep()
        except OSError as unremoved:
            return self._block(Condition.DISK_FAILED, unremoved)
        return True if condition is None or error is None else self._block(condition, error)

    def _check_free(self, file: CacheFile) -> None:
        free_bytes = self.cache.folder.free_bytes()
        if free_bytes < file.bytes + self._disk_free_bytes_min:
            problem = f"{free_bytes} bytes are free, {self._disk_free_bytes_min} have to stay so"
            raise OSError(errno.ENOSPC, problem)

    def _chunks(self, file: CacheFile) -> Iterator[bytes]:
        """Yield the store's bytes, as fast as the rate allows; given up when the file is no longer wanted."""
        location = file.location
        for chunk in self._store.chunks(file.path, CHUNK_BYTES):
            yield chunk
            self._rate.spend(len(chunk))
            if self._stop.is_set():
                raise _GivenUp
            try:
                if self._follow():
                    self._begin_walk()
            except RtolapError:
                continue  # the next round says so
            if not any(version.location == location for version in self._ready.get(file.cube, ())):
                raise _GivenUp

    def _files_of(self, version: ReadyVersion) -> list[CacheFile]:
        """Return files of a version; none while its manifest cannot be had. Raises Unavailable."""
        location = version.location
        if location in self._retry_at_s:
            return []
        if version.key not in self._known:
            path = manifest_path(location)
            try:
                data = self.cache.read(path) or self._store.read(path)
                manifest = manifest_of_version(data, version, path)
                files = files_of(version, manifest, data, hashlib.sha256(data).hexdigest())
                for file in files:
                    self.cache.folder.path(file)
            except (Corrupted, NotFound, DefinitionError) as error:
                self._put_off(location, error)
                return []
            self._known[version.key] = files
        return self._known[version.key]

    def _put_off(self, name: str, error: Corrupted | NotFound | DefinitionError) -> None:
        self._retry_at_s[name] = self._clock.monotonic_s() + RETRY_S
        match error:
            case Corrupted():
                kind = CopyFailure.DAMAGED
            case NotFound():
                kind = CopyFailure.MISSING
            case _:
                kind = CopyFailure.REFUSED
        self.failures[kind] += 1
        log.warning("%s is not placed on the disk: %s", name, error)

    def _block(self, condition: Condition, error: Exception) -> bool:
        if self.condition is not condition:
            log.warning("the history cache places nothing for now (%s): %s", condition, error)
        self.condition, self.found = condition, str(error)
        self._blocked_until_s = self._clock.monotonic_s() + RETRY_S
        return False


class _GivenUp(Exception):
    """A copy is not wanted any more."""


def _is_same(known: object, now: tuple[object, Mapping[str, SegmentRecord]]) -> bool:
    """Return True if these are the same objects: views never change an object that they returned."""
    return isinstance(known, tuple) and known[0] is now[0] and known[1] is now[1]
