"""Manifests and files of READY versions in the object store, checked against what they should be."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from rtolap.base.errors import Corrupted, NotFound, Unavailable
from rtolap.cubes.format.history import REBUILD
from rtolap.cubes.format.manifest import MANIFEST_NAME, CuboidEntry, FileEntry, HistoryManifest, decode
from rtolap.metadata.records import SegmentRecord
from rtolap.object_store.store import ObjectStore

MANIFESTS_KEPT = 2000  # a few kilobytes each
FILES_KEPT = 20_000  # names of files whose checksum was found right


class HistoryFiles:
    """Thread-safe. A file's checksum is taken once, when this process first opens it, and after a failure.

    Everything raises Unavailable when the store does not answer.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._manifests: OrderedDict[str, HistoryManifest] = OrderedDict()
        self._verified: OrderedDict[str, None] = OrderedDict()

    def manifest(self, location: str, segment: SegmentRecord) -> HistoryManifest:
        """Raises Corrupted when it is missing, damaged or another version's."""
        with self._lock:
            if location in self._manifests:
                self._manifests.move_to_end(location)
                return self._manifests[location]
        path = f"{location}/{MANIFEST_NAME}"
        try:
            manifest = decode(self._store.read(path), HistoryManifest, path)
        except NotFound as error:
            raise _missing(path) from error
        if (manifest.cube, manifest.segment, manifest.version) != (
            segment.cube,
            segment.name,
            segment.version,
        ):
            raise Corrupted(
                f"manifest {path} belongs to another version",
                expected=f"{segment.cube}/{segment.name} v{segment.version}",
                found=f"{manifest.cube}/{manifest.segment} v{manifest.version}",
            )
        with self._lock:
            self._manifests[location] = manifest
            while len(self._manifests) > MANIFESTS_KEPT:
                self._manifests.popitem(last=False)
        return manifest

    def verify(self, path: str, file: FileEntry) -> None:
        """Its size each time, its checksum once. Raises Corrupted when it is missing or damaged."""
        with self._lock:
            is_known = path in self._verified
        self._compare(path, file, with_checksum=not is_known)
        with self._lock:
            self._verified[path] = None
            while len(self._verified) > FILES_KEPT:
                self._verified.popitem(last=False)

    @contextmanager
    def readable(self, segment: SegmentRecord, location: str, cuboid: CuboidEntry) -> Iterator[None]:
        """Translate what the engine raises while it reads the cuboid into Unavailable or Corrupted.

        A store that went away in mid-read and a damaged file raise alike, so the files are looked at again.
        """
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            for file in cuboid.files:
                self._compare(f"{location}/{file.name}", file, with_checksum=True)
            name = f"history of {segment.cube}/{segment.name} v{segment.version}"
            if isinstance(error, OSError):
                raise Unavailable(
                    f"reading the {name} broke off, though its files are whole",
                    found=str(error),
                    action="ask again, and look at the object store if it stays so",
                ) from error
            raise Corrupted(
                f"{name} cannot be read",
                found=str(error),
                action=REBUILD,
            ) from error

    def _compare(self, path: str, file: FileEntry, *, with_checksum: bool) -> None:
        try:
            size = self._store.size_bytes(path)
            digest = self._store.sha256(path)[0] if with_checksum and size == file.bytes else None
        except NotFound as error:
            raise _missing(path) from error
        if size != file.bytes:
            raise _damaged(path, f"{file.bytes} bytes", f"{size} bytes")
        if digest is not None and digest != file.sha256:
            raise _damaged(path, f"sha256 {file.sha256}", digest)


def _missing(path: str) -> Corrupted:
    return Corrupted(
        f"{path} is missing from the object store",
        expected="a file that the READY version names",
        action=REBUILD,
    )


def _damaged(path: str, expected: str, found: str) -> Corrupted:
    return Corrupted(
        f"{path} is damaged",
        expected=expected,
        found=found,
        action=REBUILD,
    )
