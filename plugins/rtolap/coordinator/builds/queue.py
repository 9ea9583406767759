"""The way from REMOTE_PERSISTED to READY: the queue, attempts, promotion in order."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from rtolap.base.errors import NotFound, NotYet, Refused
from rtolap.coordinator.answers import as_message, build_info, completeness_info
from rtolap.coordinator.builds.check import (
    expected_events,
    lost_base,
    lost_parts,
    segment_cuboids,
    verified_events,
)
from rtolap.coordinator.views import Views
from rtolap.cubes.format.folders import creation_folder
from rtolap.metadata import segments
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import BuildAttempt, SegmentRecord
from rtolap.metadata.segment_batches import covered_to_be
from rtolap.model.segment import SegmentEvent, SegmentState, parse_segment_name
from rtolap.object_store.store import ObjectStore
from rtolap.protocols.coordinator import messages as wire

BUILDING_MAX = 256  # segments, of all cubes; one Spark job builds many
T = TypeVar("T")
_UPLOADED_AGAIN = (SegmentEvent.PARTS_LOST, SegmentEvent.BASE_LOST, SegmentEvent.BASE_RESTORED)
ATTEMPT_MAX_MS = 6 * 3_600_000  # an attempt that never reported back stops counting as under way


class Builds:
    def __init__(
        self,
        metadata: ClusterMetadata,
        views: Views,
        store: ObjectStore,
        object_store_uri: str,
        *,
        building_max: int = BUILDING_MAX,
    ) -> None:
        self._metadata = metadata
        self._views = views
        self._store = store
        self._uri = object_store_uri
        self._building_max = building_max

    def queue(self, cube: str | None = None) -> wire.Queue:
        """Return the REMOTE_PERSISTED segments of all cubes, or of one, by start. Raises NotFound for a cube
        that is not there."""
        if cube is not None:
            return wire.Queue(entries=tuple(self._queued(cube, self._views.fresh(cube)[1])))
        queued = self._of_all(self._queued)
        entries = [entry for of_cube in queued for entry in of_cube]
        return wire.Queue(entries=tuple(sorted(entries, key=lambda entry: (entry.start_ms, entry.cube))))

    def _queued(self, cube: str, records: Mapping[str, SegmentRecord]) -> list[wire.QueueEntry]:
        first = first_unfinished(records)
        return [
            wire.QueueEntry(
                cube=cube,
                segment=record.name,
                start_ms=record.start_ms,
                end_ms=record.end_ms,
                version=record.version + 1,
                parts=len(record.parts),
                events=expected_events(record),
                building=self._building(record),
                build=build_info(record.build),
                waits_for=_before(first, record),
                completeness=completeness_info(record),
            )
            for record in records.values()
            if record.state is SegmentState.REMOTE_PERSISTED
        ]

    def _of_all(self, look: Callable[[str, Mapping[str, SegmentRecord]], T]) -> list[T]:
        """Return what `look` returns for the records of each cube."""
        return self._views.of_all(lambda cube: look(cube, self._views.fresh(cube, is_synced=True)[1]))

    def cuboids(self, cube: str, segment: str) -> wire.SegmentCuboids:
        """Return the cuboids of the segment's version in history.

        Raises NotFound where there is none, Corrupted where its manifest is damaged.
        """
        return segment_cuboids(self._store, self._record(cube, segment))

    def start(self, cube: str, segment: str) -> wire.BuildSpecMessage:
        """Begin an attempt; an earlier one of this segment loses the right to be promoted.

        Raises NotYet while `building_max` other segments are being built.
        """
        cube_id = self._metadata.cube_id(cube)
        record = self._record(cube, segment)
        others = self._under_way(besides=(cube, segment))
        if others >= self._building_max:
            raise NotYet(
                f"segment {cube}/{segment} has to wait",
                expected=f"less than {self._building_max} builds under way",
                found=others,
            )
        self._store.claim()  # a build deletes what an earlier try has left, and only in a store of ours
        schema = self._metadata.schema(cube)
        build_id = uuid.uuid4().hex[:16]
        version = record.version + 1
        attempt = BuildAttempt(
            build_id=build_id,
            version=version,
            started_ms=self._metadata.clock.now_ms(),
            location=f"{creation_folder('history', cube, cube_id)}/{segment}/v{version}-{build_id}",
        )
        control = self._metadata.control(cube)
        started = self._metadata.update_segment(
            cube,
            record.range,
            lambda before: segments.start_build(before, attempt, control=control),
            cube_id=cube_id,
        )
        return wire.BuildSpecMessage(
            build_id=build_id,
            cube=cube,
            segment=segment,
            start_ms=started.start_ms,
            end_ms=started.end_ms,
            version=version,
            table_definition=msgspec.to_builtins(schema.table),
            cube_definition=msgspec.to_builtins(schema.cube),
            parts=tuple(as_message(wire.PartInfo, part) for part in started.parts),
            previous_location=None if started.is_rebuilt else started.location,
            previous_covered=started.built_on,
            first_offsets=control.first_offsets,
            covered=covered_to_be(started),
            object_store=self._uri,
            location=attempt.location,
            completeness=completeness_info(started),
            first_events=started.first_events,
            losses=tuple(as_message(wire.LossInfo, loss) for loss in started.losses),
            base_lost=started.base_lost,
            batch=started.pending_batch,
        )

    def promote(self, cube: str, segment: str, build_id: str) -> SegmentRecord:
        """Make the attempt's folder the READY version, after a look at its manifest.

        1. look whether it is promoted already       then nothing is left to do
        2. look whether it is this segment's turn    NotYet: earlier segments first
        3. verify the manifest                       the folder is whole and holds what the record expects
        4. commit version, location and vector       crash before: repeat; after: step 1 ends it
        """
        record = self._record(cube, segment)
        if _is_promoted(record, build_id):
            return record
        if record.build is None or record.build.build_id != build_id:
            return segments.promote(record, build_id, events=0, now_ms=0)  # raises, saying why
        if record.state is SegmentState.REMOTE_PERSISTED:
            _, records = self._views.fresh(cube)
            earlier = _before(first_unfinished(records), record)
            if earlier is not None:
                raise NotYet(
                    f"segment {cube}/{segment} has to wait",
                    expected=f"{earlier} promoted first",
                    found=records[earlier].state.value,
                    action="build that one, then ask again",
                )
            events = verified_events(self._store, record, record.build)
        else:
            events = record.events
        return self._update(
            record,
            lambda before: segments.promote(
                before, build_id, events=events, now_ms=self._metadata.clock.now_ms()
            ),
        )

    def fail(self, cube: str, segment: str, build_id: str, error: str) -> SegmentRecord:
        """Note it; where that is because staged parts are lost or damaged, they are uploaded again, and where
        the version before has lost what builds start from, all of the segment is. What a batch says nobody
        else can bring: its segment waits, with the error."""
        record = self._record(cube, segment)
        failed = self._update(record, lambda before: segments.fail_build(before, build_id, error))
        newest = failed.build is not None and failed.build.build_id == build_id
        if failed.state is not SegmentState.REMOTE_PERSISTED or not newest or failed.pending_batch:
            return failed
        if failed.batch and lost_base(self._store, failed, read_all=True) is not None:
            return failed  # no topic has its events: see `requeue`
        known = self._without_lost_base(failed, "a build failed", read_all=True)
        return self._without_lost_parts(known, "a build failed")

    def requeue(self, cube: str, segment: str) -> SegmentRecord:
        """Build it again: a READY version from itself, or, its base cuboid lost, from all of its events;
        one that waits for its build from its staged parts, of which what is lost or damaged is uploaded again
        first. A batch that is not READY yet is withdrawn."""
        record = self._record(cube, segment)
        now_ms = self._metadata.clock.now_ms()

        def requeued(before: SegmentRecord) -> SegmentRecord:
            return segments.requeue(before, now_ms=now_ms, by="requeued")

        if record.pending_batch:
            return self._update(record, requeued)
        self._refuse_lost_batch(record)
        if record.base_lost:
            record = self._with_restored_base(record)
        else:
            known = self._without_lost_base(record, "requeued", read_all=False)
            if known is not record:
                return known
        if record.state in (SegmentState.IMMUTABLE, SegmentState.REMOTE_PERSISTED):
            checked = self._without_lost_parts(record, "requeued")
            if checked.state is SegmentState.IMMUTABLE:
                requested_before = (
                    bool(checked.state_history) and checked.state_history[-1].event in _UPLOADED_AGAIN
                )
                if checked is record and not (requested_before or record.base_lost):
                    raise NotYet(
                        f"segment {cube}/{segment} is not uploaded yet, there is nothing to build",
                        expected="parts of all replica sets; those that are there are whole",
                        found=f"{len(record.parts)} parts",
                        action="`rtolap receivers list` shows what its receivers wait for",
                    )
                return checked
        return self._update(record, requeued)

    def _refuse_lost_batch(self, record: SegmentRecord) -> None:
        """Refuse to read the events of a version from the topic that a batch has said."""
        why = lost_base(self._store, record, read_all=False) if record.batch else None
        if why is not None:
            raise Refused(
                f"{record.cube}/{record.name} has lost its base cuboid, which batch {record.batch} brought",
                expected=f"the files of {record.location}",
                found=why,
                action="restore them, or stage and apply the batch again under another id",
            )

    def _without_lost_base(self, record: SegmentRecord, by: str, *, read_all: bool) -> SegmentRecord:
        """Return the record itself where builds can start from its version, or there is none."""
        why = None if record.base_lost else lost_base(self._store, record, read_all=read_all)
        if why is None:
            return record
        now_ms = self._metadata.clock.now_ms()

        def lost(before: SegmentRecord) -> SegmentRecord:
            if before.version != record.version:
                return before  # another version is READY by now
            return segments.lose_base(before, why, now_ms=now_ms, by=by)

        return self._update(record, lost)

    def _with_restored_base(self, record: SegmentRecord) -> SegmentRecord:
        """Return the record itself where the files are not there again."""
        if lost_base(self._store, record, read_all=True) is not None:
            return record
        control = self._metadata.control(record.cube)
        return self._update(
            record,
            lambda before: segments.restore_base(
                before,
                partitions={p for held in control.assignment.values() for p in held},
                first=control.first_offsets,
                now_ms=self._metadata.clock.now_ms(),
                by="requeued",
            ),
        )

    def _without_lost_parts(self, record: SegmentRecord, by: str) -> SegmentRecord:
        """Return the record itself where its parts are whole.

        Unavailable: the object store does not answer.
        """
        lost = lost_parts(self._store, record)
        if not lost:
            return record
        now_ms = self._metadata.clock.now_ms()
        return self._update(record, lambda before: segments.lose_parts(before, lost, now_ms=now_ms, by=by))

    def _update(
        self, record: SegmentRecord, change: Callable[[SegmentRecord], SegmentRecord]
    ) -> SegmentRecord:
        return self._metadata.update_segment(record.cube, record.range, change)

    def _record(self, cube: str, segment: str) -> SegmentRecord:
        parse_segment_name(segment)
        record = self._metadata.segment(cube, segment)
        if record is None:
            self._metadata.cube(cube)
            raise NotFound(
                f"segment {cube}/{segment} has no record", action="it is ACTIVE, or never had events"
            )
        return record

    def _under_way(self, *, besides: tuple[str, str]) -> int:
        """Return the segments of all cubes that are being built."""
        return sum(
            self._of_all(
                lambda cube, records: sum(
                    self._building(record) for record in records.values() if (cube, record.name) != besides
                )
            )
        )

    def _building(self, record: SegmentRecord) -> bool:
        build = record.build
        return (
            record.state is SegmentState.REMOTE_PERSISTED
            and build is not None
            and build.version == record.version + 1
            and build.error is None
            and self._metadata.clock.now_ms() - build.started_ms < ATTEMPT_MAX_MS
        )


def first_unfinished(records: Mapping[str, SegmentRecord]) -> SegmentRecord | None:
    """Return the earliest segment that is closed and has no history yet: later ones wait for it. Those that a
    batch brings hold nobody up."""
    waiting: Iterable[SegmentRecord] = (
        record
        for record in records.values()
        if record.version == 0
        and record.state in (SegmentState.IMMUTABLE, SegmentState.REMOTE_PERSISTED)
        and not record.pending_batch
    )
    return min(waiting, key=lambda record: record.start_ms, default=None)


def _before(first: SegmentRecord | None, record: SegmentRecord) -> str | None:
    """Name of `first` if `record` has to wait for it."""
    return first.name if first is not None and first.start_ms < record.start_ms else None


def _is_promoted(record: SegmentRecord, build_id: str) -> bool:
    return (
        record.state is SegmentState.READY and record.build is not None and record.build.build_id == build_id
    )
