"""The check of a build before it may be promoted: its manifest is compared with the record."""

from __future__ import annotations

from rtolap.base.errors import Corrupted, NotFound, Refused
from rtolap.cubes.format.history import check_base, read_manifest
from rtolap.cubes.format.manifest import MANIFEST_NAME, HistoryManifest, decode
from rtolap.cubes.format.staged import verify_staged
from rtolap.metadata.records import BuildAttempt, SegmentRecord
from rtolap.metadata.segment_batches import covered_to_be
from rtolap.model.segment import SegmentState
from rtolap.object_store.store import ObjectStore
from rtolap.protocols.coordinator import messages as wire


def expected_events(record: SegmentRecord) -> int:
    """Return the events that the next version has to hold; of a version that is rebuilt its parts hold
    all."""
    return (0 if record.is_rebuilt else record.events) + sum(part.events for part in record.parts)


def lost_parts(store: ObjectStore, record: SegmentRecord) -> dict[str, str]:
    """Return the staged parts that are missing or changed since they were written: path → what is wrong. All
    parts are read."""
    missing: dict[str, str] = {}
    for part in record.parts:
        try:
            verify_staged(store, part.path)
        except (NotFound, Corrupted) as error:
            missing[part.path] = error.message
    return missing


def lost_base(store: ObjectStore, record: SegmentRecord, *, read_all: bool) -> str | None:
    """Return what is wrong with the base from which builds of the READY version start; None where nothing
    is."""
    if record.location is None or record.state is SegmentState.PURGED:
        return None
    try:
        check_base(store, record.location, read_all=read_all)
    except (NotFound, Corrupted) as error:
        return error.message
    return None


def segment_cuboids(store: ObjectStore, record: SegmentRecord) -> wire.SegmentCuboids:
    """Return the cuboids of the version in history. Raises NotFound where there is none, and Corrupted."""
    if record.location is None:
        raise NotFound(
            f"segment {record.cube}/{record.name} has no version in history", found=record.state.value
        )
    manifest = read_manifest(store, record.location)
    cuboids = [
        wire.CuboidInfo(
            name=each.name,
            dimensions=each.dimensions,
            rows=each.rows,
            files=len(each.files),
            bytes=sum(file.bytes for file in each.files),
        )
        for each in manifest.cuboids
    ]
    largest = sorted(cuboids, key=lambda each: (-each.bytes, each.name))
    return wire.SegmentCuboids(segment=record.name, version=manifest.version, cuboids=tuple(largest))


def verified_events(store: ObjectStore, record: SegmentRecord, build: BuildAttempt) -> int:
    """Return events that the attempt's folder holds.

    Refused without a manifest, Corrupted with a wrong one.
    """
    path = f"{build.location}/{MANIFEST_NAME}"
    try:
        data = store.read(path)
    except NotFound as error:
        raise Refused(
            f"build {build.build_id} of {record.cube}/{record.name} is not finished",
            expected=f"a manifest at {path}",
            found="none",
            action="start a new build",
        ) from error
    manifest = decode(data, HistoryManifest, path)
    expected = (record.cube, record.name, build.version, build.build_id, covered_to_be(record))
    found = (manifest.cube, manifest.segment, manifest.version, manifest.build_id, manifest.covered)
    if found != expected:
        raise Corrupted(f"manifest {path} is of another build", expected=expected, found=found)
    for what in ("completeness", "losses"):
        stated, wanted = getattr(manifest, what), getattr(record, what)
        if stated != wanted:
            raise Corrupted(
                f"manifest {path} states other {what} than its segment",
                expected=wanted,
                found=stated,
                action="start a new build",
            )
    if manifest.events != expected_events(record):
        staged = sum(part.events for part in record.parts)
        raise Corrupted(
            f"manifest {path} does not hold the events of its sources",
            expected=f"{expected_events(record) - staged} of version {record.version} + the staged parts' "
            f"{staged}",
            found=manifest.events,
            action="start a new build; if it happens again, verify the staged parts",
        )
    counted = record.first_events is not None  # else some events may have been accepted as lost
    if record.base_lost and not record.pending_batch and counted and manifest.events < record.events:
        raise Corrupted(
            f"version {build.version} of {record.cube}/{record.name}, read again from Kafka, lacks events",
            expected=f"{record.events} of version {record.version} at least",
            found=manifest.events,
            action=f"restore the files of {record.location}, then `rtolap segments requeue`: the topic no "
            "longer gives what it gave, it may be compacted",
        )
    late = manifest.late_events
    first_events = manifest.events if record.version == 0 else record.first_events
    if late is not None and first_events is not None and late != manifest.events - first_events:
        raise Corrupted(
            f"manifest {path} states a wrong number of late events",
            expected=manifest.events - first_events,
            found=late,
            action="start a new build",
        )
    return manifest.events
