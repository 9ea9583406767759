"""The leader's way from local tables to the object store: one staged part per closed version.

  1. choose: the segment's vector is persisted, this receiver has consumed up to it, nothing straddles
  2. write the part's files, manifest last     crash: a folder that no record names; cleanup removes it.
                                               So is one of fragments that prove to be damaged
  3. add the part to the record, by CAS        crash or CommitUnknown: repeated, and a part whose ranges
                                               are there already changes nothing

A deposed leader may do the same at the same time: the second one changes nothing.

If a version has lost what builds start from, the part holds the whole segment: events that history covers are
read from Kafka again, and later events are in local tables.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from rtolap.cubes.format.aggregate import merge_tables, to_plain
from rtolap.cubes.format.staged import write_staged_part
from rtolap.cubes.receiver.local.align import VersionedRange
from rtolap.cubes.receiver.local.fragments import verified
from rtolap.cubes.receiver.local.realign import RangeReader
from rtolap.cubes.receiver.local.tables import LocalSegment, LocalState, LocalTable, union
from rtolap.metadata import segments
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.model.completeness import EventLoss, behind_losses
from rtolap.model.cube import Schema
from rtolap.model.offsets import Offsets, PartRange
from rtolap.model.segment import SegmentRange, SegmentState, StagedPart
from rtolap.object_store.store import ObjectStore

MERGED_BYTES_MAX = 64 << 20  # of local tables at once: their merge takes two and a half times as much


@dataclass(frozen=True)
class UploadJob:
    """A part of a segment to upload.

    Attributes:
        ranges: the offsets of the part, out of `tables` and of `read`.
        read: ranges to read from Kafka.
        rebuilt: True where the version is rebuilt, because the previous one has lost what builds start from.
    """

    window: SegmentRange
    version: int
    ranges: tuple[PartRange, ...]
    tables: tuple[LocalTable, ...]
    read: tuple[VersionedRange, ...]
    rebuilt: bool


def upload_job(
    schema: Schema,
    state: LocalState,
    control: CubeControl,
    records: Mapping[int, SegmentRecord],
    besides: Container[int] = (),
) -> UploadJob | None:
    """Return the earliest closed segment that lacks this replica set's part and is ready for it.

    Versions that are rebuilt come last, for reading takes long. `besides`: starts of segments that are left
    out.
    """
    if schema.cube.retention.policy == "PURGE" or not state.positions:
        return None
    for start_ms, record in sorted(records.items(), key=lambda one: (one[1].base_lost, one[0])):
        if record.state is SegmentState.IMMUTABLE and start_ms not in besides:
            job = _job(state, control, record, state.segments.get(start_ms, LocalSegment(start_ms)))
            if job is not None:
                return job
    return None


def _job(
    state: LocalState, control: CubeControl, record: SegmentRecord, segment: LocalSegment
) -> UploadJob | None:
    mine = sorted(state.positions)
    known = state.vectors.get(record.start_ms)
    if known is None or (known.version, known.target) != (record.version, record.target):
        return None  # not aligned with this very record yet
    if any(part not in record.target or state.positions[part] < record.target[part] for part in mine):
        return None
    if any(table.straddles for table in segment.tables):
        return None
    there = {piece.partition for part in record.parts for piece in part.ranges}
    ranges = tuple(
        PartRange(part, record.built_on.get(part, control.first_offsets.get(part, 0)), record.target[part])
        for part in mine
        if part not in there
    )
    if all(piece.end <= record.built_on.get(piece.partition, -1) for piece in ranges):
        return None  # all is there, or was in history before: no late event is of these partitions
    version = record.version + 1
    tables = segment.of_version(version)
    read = _covered(record, control, ranges) if record.base_lost else ()
    if len(ranges) < len(mine):  # local tables hold more: only where they have events is anything to be read
        local_ranges = union(table.ranges for table in tables)
        read += tuple(
            _behind(control.losses, VersionedRange(p, *local_ranges[p], version))
            for p in _of(ranges)
            if p in local_ranges
        )
        tables = ()
    return UploadJob(record.range, version, ranges, tables, read, record.base_lost)


def _covered(
    record: SegmentRecord, control: CubeControl, ranges: Iterable[PartRange]
) -> tuple[VersionedRange, ...]:
    """Return the part of `ranges` that history covers, from where the segment's events begin on, without
    losses."""
    losses = segments.known_losses(record, control)
    return tuple(
        _behind(losses, VersionedRange(piece.partition, max(piece.start, begin), end, record.version + 1))
        for piece in ranges
        for begin in (record.begins.get(piece.partition, piece.start),)
        for end in (record.covered.get(piece.partition, 0),)
        if max(piece.start, begin) < end
    )


def _behind(losses: Iterable[EventLoss], piece: VersionedRange) -> VersionedRange:
    start = behind_losses(losses, piece.partition, piece.start)
    return replace(piece, start=min(start, piece.end))


def _of(ranges: Iterable[PartRange]) -> list[int]:
    return [piece.partition for piece in ranges]


@dataclass(eq=False)
class Uploader:
    """Takes the local tables of one creation, `cube_id`. No other creation gets a part of them."""

    schema: Schema
    cube_id: str
    replica_set: str
    metadata: ClusterMetadata
    store: ObjectStore
    reader: RangeReader

    def upload(self, job: UploadJob, control: CubeControl, folder: Path) -> SegmentRecord:
        """Upload a part of tables whose fragments are in `folder`; it may be repeated.

        After Unavailable or CommitUnknown, try again. Refused means that the record has moved on. Raises what
        `fragments.verified` raises, before the record has the part.
        """
        with verified(folder, job.tables):
            part = self._written(job)
        cube = self.schema.cube
        partitions = {p for assigned in control.assignment.values() for p in assigned}

        def added(record: SegmentRecord) -> SegmentRecord:
            moved_on = record.version + 1 != job.version or record.base_lost is not job.rebuilt
            if moved_on or record.state is not SegmentState.IMMUTABLE:
                return record  # promoted, purged or restored meanwhile: the files are garbage
            return segments.add_part(
                record,
                part,
                partitions=partitions,
                first=control.first_offsets,
                now_ms=self.metadata.clock.now_ms(),
            )

        return self.metadata.update_segment(cube.name, job.window, added, cube_id=self.cube_id)

    def _written(self, job: UploadJob) -> StagedPart:
        wanted = [piece for piece in job.read if piece.start < piece.end]
        tables = (*job.tables, *(self.reader.read(job.window.start_ms, wanted) if wanted else ()))
        return write_staged_part(
            self.store,
            schema=self.schema,
            cube=self.schema.cube.name,
            cube_id=self.cube_id,
            segment=job.window.name,
            version=job.version,
            replica_set=self.replica_set,
            ranges=job.ranges,
            tables=self._plain(tables),
            events=sum(table.events for table in tables),
            unique=uuid.uuid4().hex[:12],
            begins=_begins(job.ranges, tables),
        )

    def _plain(self, tables: Sequence[LocalTable]) -> Iterator[pa.Table]:
        """Yield the rows of the tables in plain form, merged where they are together within MERGED_BYTES_MAX:
        a build merges the rest."""
        for group in _groups(tables):
            merged = merge_tables(self.schema, [table.table for table in group])
            yield to_plain(self.schema, merged)


def _groups(tables: Sequence[LocalTable]) -> Iterator[list[LocalTable]]:
    """Yield neighbours that have at most MERGED_BYTES_MAX together, or one table that has more by itself."""
    group: list[LocalTable] = []
    for table in tables:
        if group and sum(member.nbytes for member in group) + table.nbytes > MERGED_BYTES_MAX:
            yield group
            group = []
        group.append(table)
    if group:
        yield group


def _begins(ranges: Iterable[PartRange], tables: Iterable[LocalTable]) -> Offsets:
    """Return the least offsets at which there are events; behind the range of a partition without any."""
    local_ranges = union(table.ranges for table in tables)
    return {piece.partition: local_ranges.get(piece.partition, (piece.end,))[0] for piece in ranges}
