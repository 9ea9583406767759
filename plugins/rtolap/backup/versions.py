"""A backup compared with the object store: what its records name and is gone, and what is newer.

A version is adopted where a whole one stands in the store that the records do not name yet. Its vectors
stand beside it only where it was promoted: other attempts are left, as one of a batch that was withdrawn. Its
manifest states the same vector, and receivers, which read again, skip exactly what that covers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from rtolap.backup.findings import Finding
from rtolap.base.errors import Corrupted, NotFound
from rtolap.base.undecodable import decode_own
from rtolap.cubes.format.folders import ROOTS, creation_folder, merge_folders, version_folders
from rtolap.cubes.format.history import manifest_path, read_manifest
from rtolap.cubes.format.manifest import (
    BATCH_NAME,
    MANIFEST_NAME,
    BatchManifest,
    HistoryManifest,
    MergedManifest,
    decode,
)
from rtolap.metadata import segments
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import MergedSet, SegmentRecord
from rtolap.metadata.segment_events import take_event
from rtolap.metadata.segment_format.vectors import VersionVectors, vectors_path, version_of_folder
from rtolap.model.merging.specs import MergeMember
from rtolap.model.segment import SegmentEvent, SegmentRange, SegmentState, parse_segment_name
from rtolap.object_store.store import ObjectStore

BY = "restore"

SegmentChange = Callable[[SegmentRecord, int], SegmentRecord]  # (record, present time) → record


class SegmentStep(NamedTuple):
    """A change of a segment's record, after the records of the backup are written.

    Attributes:
        change: (record, present time) → record; idempotent.
        with_vectors: the change needs the vectors of the version that the record names.
    """

    cube: str
    window: SegmentRange
    change: SegmentChange
    with_vectors: bool
    finding: Finding


class SetStep(NamedTuple):
    """A merged set that its members' records do not name yet. It is left where a member has changed."""

    cube: str
    members: tuple[MergeMember, ...]
    merged: MergedSet


class _Whole(NamedTuple):
    """A version that stands whole in the object store.

    Attributes:
        vectors: None for a version that a record names, whose vectors are gone: its manifest has `covered`.
    """

    location: str
    manifest: HistoryManifest
    vectors: VersionVectors | None


def compare_versions(
    backup: ClusterMetadata, store: ObjectStore
) -> Iterator[SegmentStep | SetStep | Finding]:
    """Yield what is to be done, and what is lacking, cube by cube.

    Raises Unavailable.
    """
    for cube in backup.cubes():
        yield from _CubeFiles(backup, store, cube).compare()


class _CubeFiles:
    def __init__(self, backup: ClusterMetadata, store: ObjectStore, cube: str) -> None:
        self._store, self._cube = store, cube
        self._cube_id = backup.cube_id(cube)
        self._horizon_ms = backup.control(cube).horizon_ms
        self._records = backup.nodes.segments(cube)
        self._files: dict[str, int] = {
            file.path: file.bytes
            for root in ROOTS
            for parent in dict.fromkeys((creation_folder(root, cube, self._cube_id), f"{root}/{cube}"))
            for file in store.list(parent)
        }
        self._vectors_of: dict[str, list[str]] = {}  # location → files of its vectors
        for path in sorted(self._files):
            folder = path.rpartition("/")[0]
            if version_of_folder(folder) != folder:
                self._vectors_of.setdefault(version_of_folder(folder), []).append(path)

    def compare(self) -> Iterator[SegmentStep | SetStep | Finding]:
        whole, damaged = self._whole_versions()
        yield from damaged
        batches = self._batches()
        for name in sorted(self._records.keys() | whole.keys()):
            window, record = parse_segment_name(name), self._records.get(name)
            if self._is_purged(window, record):
                continue
            newest = max(
                whole.get(name, []), key=lambda each: (each.manifest.version, each.location), default=None
            )
            if newest is not None and self._is_newer(newest, record):
                yield self._adoption(window, record, newest, batches.get(name, {}))
            elif record is not None:
                yield from self._of_record(window, record)
        yield from self._sets()

    # -- versions that are newer ------------------------------------------------------------------------

    def _whole_versions(self) -> tuple[dict[str, list[_Whole]], list[Finding]]:
        """Return the whole versions by segment, those only that are newer than the record or stand for it."""
        found: dict[str, list[_Whole]] = {}
        damaged: list[Finding] = []
        for path, name, version in version_folders(self._store, "history", self._cube, self._cube_id):
            record = self._records.get(name)
            own = record is not None and path == record.location
            if manifest_path(path) not in self._files or not (own or path in self._vectors_of):
                continue  # an attempt that did not end, or was not promoted
            if record is not None and (version < record.version or (own and self._stands(record))):
                continue
            if self._is_purged(parse_segment_name(name), record):
                continue
            try:
                found.setdefault(name, []).append(self._whole(path, name, version))
            except (Corrupted, NotFound) as error:
                damaged.append(Finding("lacking", f"version {path}", f"is not adopted: {error}"))
        return found, damaged

    def _whole(self, path: str, name: str, version: int) -> _Whole:
        """Return the version. Raises Corrupted, NotFound where it is not whole."""
        manifest = read_manifest(self._store, path)
        stated = (manifest.cube, manifest.segment, manifest.version)
        if stated != (self._cube, name, version):
            raise Corrupted(f"the manifest of {path} is of another version", found=stated)
        base = max(manifest.cuboids, key=lambda cuboid: len(cuboid.dimensions), default=None)
        for file in () if base is None else base.files:  # other cuboids of merged versions may be trimmed
            size = self._files.get(f"{path}/{file.name}")
            if size != file.bytes:
                raise Corrupted(f"the file {path}/{file.name} is not whole", expected=file.bytes, found=size)
        files = self._vectors_of.get(path)
        return _Whole(path, manifest, self._vectors(manifest, files[0]) if files else None)

    def _vectors(self, manifest: HistoryManifest, path: str) -> VersionVectors:
        data = self._store.read(path)
        vectors = decode_own(data, VersionVectors, f"{path} does not hold the vectors of a version")
        named = path.rpartition("/")[2].removesuffix(".json")
        if not hashlib.sha256(data).hexdigest().startswith(named) or vectors.covered != manifest.covered:
            raise Corrupted(f"the vectors {path} are not those of the version")
        return vectors

    def _is_newer(self, whole: _Whole, record: SegmentRecord | None) -> bool:
        """Return True for a later version, and for the record's own where what the record names is gone."""
        if record is None or record.version < whole.manifest.version:
            return True
        return not self._stands(record)

    def _stands(self, record: SegmentRecord) -> bool:
        if record.location is None or manifest_path(record.location) not in self._files:
            return False
        return record.vectors is None or vectors_path(record.location, record.vectors) in self._files

    def _adoption(
        self, window: SegmentRange, record: SegmentRecord | None, whole: _Whole, batches: Mapping[int, str]
    ) -> SegmentStep:
        manifest = whole.manifest
        vectors = whole.vectors
        later = [version for version in batches if version <= manifest.version]
        batch = batches[max(later)] if later else ("" if record is None else record.batch)

        def adopt(before: SegmentRecord, now_ms: int) -> SegmentRecord:
            newest = before.state_history[-1:]
            if any((line.event, line.at_ms) == (SegmentEvent.ADOPT.value, now_ms) for line in newest):
                return before  # by an attempt whose answer was lost
            note = f"{BY}: version {manifest.version}, {whole.location}"
            return msgspec.structs.replace(
                take_event(before, SegmentEvent.ADOPT, now_ms, note),
                version=manifest.version,
                location=whole.location,
                covered=dict(manifest.covered),
                covered_epochs={} if vectors is None else vectors.covered_epochs,
                begins={} if vectors is None else vectors.begins,
                losses=manifest.losses,
                target={},
                target_epochs={},
                parts=(),
                build=None,
                events=manifest.events,
                first_events=None if manifest.late_events is None else manifest.events - manifest.late_events,
                completeness=manifest.completeness,
                base_lost=False,
                pending_batch="",
                batch=batch,
                vectors=None,
                merged=(),
            )

        before = "no version" if record is None or not record.version else f"version {record.version}"
        message = f"version {manifest.version} is adopted from {whole.location}: the backup names {before}"
        finding = Finding("taken", f"segment {self._cube}/{window.name}", message)
        return SegmentStep(self._cube, window, adopt, False, finding)

    def _batches(self) -> dict[str, dict[int, str]]:
        """Return segment → version → id of the batch that it was staged for."""
        found: dict[str, dict[int, str]] = {}
        for path in sorted(self._files):
            if path.endswith(f"/{BATCH_NAME}"):
                try:
                    batch = decode(self._store.read(path), BatchManifest, path)
                except NotFound:
                    continue  # deleted since it was listed
                for part in batch.parts:
                    found.setdefault(part.segment, {})[part.version] = batch.batch
        return found

    # -- what records name ------------------------------------------------------------------------------

    def _of_record(self, window: SegmentRange, record: SegmentRecord) -> Iterator[SegmentStep | Finding]:
        subject = f"segment {self._cube}/{window.name}"
        if record.version and not self._stands(record):
            yield from self._lost_version(window, record, subject)
            return
        lost = {
            part.path: "no such part"
            for part in record.parts
            if f"{part.path}/{MANIFEST_NAME}" not in self._files
        }
        if lost and record.pending_batch:
            yield Finding(
                "lacking", subject, f"parts of batch {record.pending_batch} are gone", "stage the batch again"
            )
        elif lost:
            yield SegmentStep(
                self._cube,
                window,
                lambda before, now_ms: segments.lose_parts(before, lost, now_ms=now_ms, by=BY),
                True,
                Finding("changed", subject, f"{len(lost)} staged parts are gone: receivers upload all again"),
            )
        gone = {each for each in record.merged if f"{each.location}/{MANIFEST_NAME}" not in self._files}
        if gone:
            yield SegmentStep(
                self._cube,
                window,
                lambda before, _: msgspec.structs.replace(
                    before, merged=tuple(each for each in before.merged if each not in gone)
                ),
                False,
                Finding("changed", subject, "merged sets are gone: its own version answers"),
            )

    def _lost_version(
        self, window: SegmentRange, record: SegmentRecord, subject: str
    ) -> Iterator[SegmentStep | Finding]:
        assert record.location is not None, "a READY version has a location"
        vectors = record.vectors is None or vectors_path(record.location, record.vectors) in self._files
        if not vectors:
            when = " once events of it come late" if record.state is SegmentState.READY else ""
            yield Finding(
                "lacking",
                subject,
                f"version {record.version} and its vectors are gone: statements of its time are refused, and "
                f"receivers of the cube wait for the vectors{when}",
                f"restore {record.location} and its vectors in the object store, or purge the cube up to "
                "this segment's end, with all that is older",
            )
            return
        yield SegmentStep(
            self._cube,
            window,
            lambda before, now_ms: segments.lose_base(before, "its files are gone", now_ms=now_ms, by=BY),
            True,
            Finding(
                "lacking",
                subject,
                f"version {record.version} is gone: it is read again from Kafka and rebuilt, and until then "
                "statements of its time are refused",
                f"restore {record.location} in the object store, or wait for the build",
            ),
        )

    def _sets(self) -> Iterator[SetStep]:
        named = {each.location for record in self._records.values() for each in record.merged}
        for folder in merge_folders(self._store, self._cube, self._cube_id):
            location = f"{folder}/set"
            path = f"{location}/{MANIFEST_NAME}"
            if path not in self._files or location in named:
                continue
            manifest = decode(self._store.read(path), MergedManifest, path)
            merged = MergedSet(manifest.level, location, len(manifest.members))
            yield SetStep(self._cube, manifest.members, merged)

    def _is_purged(self, window: SegmentRange, record: SegmentRecord | None) -> bool:
        if record is not None and record.state is SegmentState.PURGED:
            return True
        return self._horizon_ms is not None and window.end_ms <= self._horizon_ms
