"""The cache's folder: marked as ours, locked by one process, with copies under the paths of the store.

    rtolap-history-cache    the marker: without it a folder that holds anything is not taken
    lock                    flock of the process that owns the folder
    files/history/<cube>/<segment>/v<version>-<build id>/…    as in the store
    files/….rtolap-tmp      a copy that is being written

Paths are checked by `ObjectStore.absolute`, as in the store itself. Only what lies below `files` is removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pyarrow import fs

from rtolap.base.errors import Corrupted, DefinitionError
from rtolap.base.files import write_atomic
from rtolap.cubes.format.manifest import MANIFEST_NAME, HistoryManifest, MergedManifest, decode
from rtolap.model.segment import parse_segment_name
from rtolap.object_store.store import ObjectStore
from rtolap.query.history_cache.placement import (
    CacheFile,
    ReadyVersion,
    files_of,
    manifest_of_version,
    span_of,
)

MARKER = "rtolap-history-cache"
_LOCK, _FILES = "lock", "files"
_TEMPORARY_SUFFIX = ".rtolap-tmp"
_NAMED_MAX = 5


class FileIdentity(NamedTuple):
    """The facts that change when somebody else writes a file: then its checksum has to be taken again."""

    bytes: int
    modified_ns: int
    inode: int


class CacheDisk:
    """The operations that change the disk: a seam, so that tests can stop the world between any two."""

    def create(self, path: Path) -> BinaryIO:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("wb", buffering=0)

    def write(self, file: BinaryIO, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]

    def sync(self, file: BinaryIO) -> None:
        os.fsync(file.fileno())

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        """Remove the file, if it exists."""
        path.unlink(missing_ok=True)

    def free_bytes(self, folder: Path) -> int:
        return shutil.disk_usage(folder).free


class CacheFolder:
    """A folder of cached files.

    Only one thread may change it; any thread may read it. Raises OSError of the disk.
    """

    def __init__(self, root: Path, disk: CacheDisk | None = None) -> None:
        """Raise DefinitionError for a folder that holds other things."""
        self.root = root
        self._disk = disk or CacheDisk()
        self._lock: int | None = None
        _claim(root)
        files = root / _FILES
        self.files = ObjectStore(fs.LocalFileSystem(), str(files), files.as_uri())

    def lock(self) -> bool:
        """Take the folder for this process, up to its end at most; False while another one has it."""
        if self._lock is None:
            descriptor = os.open(self.root / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return False
            self._lock = descriptor
        return True

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def path(self, file: CacheFile) -> Path:
        """Return the path of a file. Raises DefinitionError for a path that leaves the folder."""
        return Path(self.files.absolute(file.path))

    def copy(self, file: CacheFile, chunks: Iterable[bytes]) -> FileIdentity:
        """Write a copy out of the store's bytes.

        1. write the temporary file, hashing      crash: the next scan removes it
        2. compare size and checksum              crash: the same
        3. fsync, rename                          crash: the file has its name and is whole, or has none

        Raises Corrupted for bytes that are not the file's; never writes more of them than the file has.
        """
        target = self.path(file)
        temporary = target.with_name(target.name + _TEMPORARY_SUFFIX)
        digest, size_bytes = hashlib.sha256(), 0
        with self._disk.create(temporary) as sink:
            for chunk in chunks:
                size_bytes += len(chunk)
                if size_bytes > file.bytes:
                    break
                digest.update(chunk)
                self._disk.write(sink, chunk)
            if (size_bytes, digest.hexdigest()) != (file.bytes, file.sha256):
                raise Corrupted(
                    f"{file.path} in the object store is not what its manifest says",
                    expected=f"{file.bytes} bytes, sha256 {file.sha256}",
                    found=f"{size_bytes} bytes or more, sha256 {digest.hexdigest()}",
                )
            self._disk.sync(sink)
        self._disk.rename(temporary, target)
        return self.identity(file)

    def remove(self, file: CacheFile) -> None:
        """Remove the copy, or the part of it that exists, and the folders that are empty then."""
        target = self.path(file)
        self._disk.remove(target.with_name(target.name + _TEMPORARY_SUFFIX))
        self._disk.remove(target)
        self._remove_empty(target.parent)

    def identity(self, file: CacheFile) -> FileIdentity:
        found = self.path(file).stat()
        return FileIdentity(found.st_size, found.st_mtime_ns, found.st_ino)

    def is_whole(self, file: CacheFile) -> bool:
        """Return True if the file has its size and its checksum. Reads all of it."""
        digest = hashlib.sha256()
        with self.path(file).open("rb") as source:
            if os.fstat(source.fileno()).st_size != file.bytes:
                return False
            while chunk := source.read(1 << 20):
                digest.update(chunk)
        return digest.hexdigest() == file.sha256

    def free_bytes(self) -> int:
        return self._disk.free_bytes(self.root)

    def scan(self, bytes_max: int, files_max: int) -> dict[ReadyVersion, list[CacheFile]]:
        """Return the copies that an earlier process left and that fit, newest first, and remove the rest.

        A copy stands if the manifest beside it is whole and names it with this size; its checksum is taken
        before it is first read. Call it when the folder is locked.
        """
        versions = sorted(self._versions(), key=lambda found: found[0].order)
        adopted: dict[ReadyVersion, list[CacheFile]] = {}
        names: set[Path] = set()
        total_bytes = 0
        for version, files in versions:
            for file in files:
                try:
                    size_bytes = self.identity(file).bytes
                except FileNotFoundError:
                    continue
                fits = total_bytes + file.bytes <= bytes_max and len(names) < files_max
                if size_bytes == file.bytes and fits:
                    total_bytes += file.bytes
                    names.add(self.path(file))
                    adopted.setdefault(version, []).append(file)
        for folder, _, files_there in os.walk(self.files.root, topdown=False):
            for name in files_there:
                if (path := Path(folder, name)) not in names:
                    self._disk.remove(path)
            self._remove_empty(Path(folder))
        return adopted

    def _versions(self) -> Iterator[tuple[ReadyVersion, list[CacheFile]]]:
        for manifest_file in Path(self.files.root).rglob(MANIFEST_NAME):
            location = manifest_file.parent.relative_to(self.files.root).as_posix()
            try:
                data = manifest_file.read_bytes()
                version = _version_of(data, location)
                manifest = manifest_of_version(data, version, location)
                files = files_of(version, manifest, data, hashlib.sha256(data).hexdigest())
                for file in files:
                    self.path(file)
            except (OSError, Corrupted, DefinitionError):
                continue  # not whole, or not readable: the scan removes all of it
            yield version, files

    def _remove_empty(self, folder: Path) -> None:
        files = Path(self.files.root)
        while folder != files and files in folder.parents:
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError:  # not empty
                return
            folder = folder.parent


def _version_of(data: bytes, location: str) -> ReadyVersion:
    """Return the version, or merged set, whose manifest this is, by its folder. Raises Corrupted."""
    root, cube, *inner = location.split("/")
    if root == "merged":
        merged = decode(data, MergedManifest, location)
        span = span_of(merged)
        known = merged.cube == cube and merged.merge in inner
        version = ReadyVersion(span.end_ms, span.start_ms, merged.cube, span.name, 0, location)
    else:
        manifest = decode(data, HistoryManifest, location)
        span = parse_segment_name(manifest.segment)
        known = manifest.cube == cube and manifest.segment in inner
        version = ReadyVersion(
            span.end_ms, span.start_ms, manifest.cube, manifest.segment, manifest.version, location
        )
    if not known:
        raise Corrupted(f"the manifest in {location} is of another folder")
    return version


def _claim(root: Path) -> None:
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    marker = root / MARKER
    if not marker.exists():
        if foreign := sorted(entry.name for entry in root.iterdir() if entry.name != f"{MARKER}.tmp"):
            raise DefinitionError(
                f"the folder of the history cache, {root}, holds other things",
                expected="an empty folder, or one that a query service has marked",
                found=", ".join(foreign[:_NAMED_MAX]),
                action="name a folder of its own in RTOLAP_HISTORY_CACHE_DIR",
            )
        write_atomic(marker, b"The folder beside this file is written and deleted by rtolap.\n")
    (root / _FILES).mkdir(mode=0o700, exist_ok=True)
