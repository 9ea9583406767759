"""The vectors of a READY version, in a file beside its data; the segment's record holds the file's checksum.

    <location of the version>-vectors/<first 16 digits of the checksum>.json

A record stays small, however many partitions its cube has. Records are signed, so the checksum is trusted:
who may write to the object store cannot alter what counts as history. The folder stands beside
the version's and is deleted with it; it stays where the version's own files are lost, because the vectors say
what is read from Kafka again then. The file's name follows from its bytes: a repetition writes the same file,
and no file is ever replaced by another one.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from typing import Protocol

import msgspec

from rtolap.base.errors import Corrupted, NotFound
from rtolap.base.undecodable import decode_own
from rtolap.metadata.records import SegmentRecord
from rtolap.model.completeness import EventLoss
from rtolap.model.offsets import Offsets
from rtolap.model.segment import SegmentState

CACHED_OFFSETS_MAX = 500_000  # some 100 bytes each
_NAME_DIGITS = 16
_SUFFIX = "-vectors"


class VersionVectors(msgspec.Struct, frozen=True, kw_only=True):
    """The statements of a READY version by partition; see `records.SegmentRecord` for the fields."""

    cube: str
    segment: str
    version: int
    covered: Offsets
    covered_epochs: Offsets = {}
    begins: Offsets = {}
    losses: tuple[EventLoss, ...] = ()


class VersionFiles(Protocol):
    """The seam to an object store. Paths are relative to its root."""

    def read(self, path: str) -> bytes:
        """Return the file's bytes. Raises NotFound, Unavailable."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Create the file in one step; when this returns it is durable. Raises Unavailable."""
        ...


def vectors_path(location: str, sha256: str) -> str:
    return f"{location}{_SUFFIX}/{sha256[:_NAME_DIGITS]}.json"


def version_of_folder(path: str) -> str:
    """Return the location of the version whose data, or whose vectors, are in that folder."""
    return path.removesuffix(_SUFFIX)


class VectorFiles:
    """Writes and reads vectors, each checked against the record that names it. It is thread-safe."""

    def __init__(self, files: VersionFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._known: OrderedDict[str, VersionVectors] = OrderedDict()
        self._offsets = 0

    def write(self, record: SegmentRecord) -> str:
        """Write the vectors of the record's READY version beside its data. Return their checksum."""
        assert record.location is not None, "a READY version has a location"
        vectors = VersionVectors(
            cube=record.cube,
            segment=record.name,
            version=record.version,
            covered=dict(sorted(record.covered.items())),
            covered_epochs=dict(sorted(record.covered_epochs.items())),
            begins=dict(sorted(record.begins.items())),
            losses=record.losses,
        )
        data = msgspec.json.encode(vectors)
        sha256 = hashlib.sha256(data).hexdigest()
        self._files.write(vectors_path(record.location, sha256), data)
        self._keep(sha256, vectors)
        return sha256

    def read(self, record: SegmentRecord) -> VersionVectors:
        """Return the vectors that the record names. Raises Corrupted, Unavailable."""
        assert record.vectors is not None, "the record names vectors"
        assert record.location is not None, "a READY version has a location"
        with self._lock:
            known = self._known.get(record.vectors)
            if known is not None:
                self._known.move_to_end(record.vectors)
                return known
        path = vectors_path(record.location, record.vectors)
        try:
            data = self._files.read(path)
        except NotFound as error:
            raise _lost(record, path, "is missing", "no such file") from error
        found = hashlib.sha256(data).hexdigest()
        if found != record.vectors:
            raise _lost(record, path, "was altered", found)
        vectors = decode_own(data, VersionVectors, f"{path} does not hold the vectors of a version")
        self._keep(record.vectors, vectors)
        return vectors

    def whole(self, record: SegmentRecord) -> SegmentRecord:
        """Return the record with the vectors of its READY version in it. Raises Corrupted, Unavailable.

        A purged segment needs none: they are deleted with its files.
        """
        if record.vectors is None or record.state is SegmentState.PURGED:
            return record
        vectors = self.read(record)
        return msgspec.structs.replace(
            record,
            covered=vectors.covered,
            covered_epochs=vectors.covered_epochs,
            begins=vectors.begins,
            losses=vectors.losses if record.state is SegmentState.READY else record.losses,
        )

    def _keep(self, sha256: str, vectors: VersionVectors) -> None:
        with self._lock:
            before = self._known.pop(sha256, None)
            self._offsets += _offsets_of(vectors) - (0 if before is None else _offsets_of(before))
            self._known[sha256] = vectors
            while self._offsets > CACHED_OFFSETS_MAX and len(self._known) > 1:
                _, oldest = self._known.popitem(last=False)
                self._offsets -= _offsets_of(oldest)


def _offsets_of(vectors: VersionVectors) -> int:
    return len(vectors.covered) + len(vectors.covered_epochs) + len(vectors.begins)


def _lost(record: SegmentRecord, path: str, what: str, found: str) -> Corrupted:
    return Corrupted(
        f"the file {path} {what}: it holds the vectors of version {record.version} of "
        f"{record.cube}/{record.name}",
        expected=f"sha256 {record.vectors}",
        found=found,
        action="restore the file from a backup of the object store: statements do not need it, events that "
        "arrive late and builds of this segment do",
    )
