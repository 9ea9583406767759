"""A segment's record, changed: pure functions `(record, …) → record`. Callers commit by version check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from rtolap.base.errors import Refused
from rtolap.metadata.records import BuildAttempt, CubeControl, SegmentRecord
from rtolap.metadata.segment_batches import withdraw_batch
from rtolap.metadata.segment_events import shown_vector, take_event
from rtolap.model.completeness import Completeness, EventLoss, losses_between, weaker
from rtolap.model.offsets import Offsets, PartRange
from rtolap.model.segment import SegmentEvent, SegmentState, StagedPart


def close(
    record: SegmentRecord,
    vector: Offsets,
    *,
    now_ms: int,
    by: str,
    version: int | None = None,
    completeness: Completeness | None = None,
    epochs: Mapping[int, int] | None = None,
) -> SegmentRecord:
    """Add one replica set's closing offsets to the target of the next version.

    `version`: the one that the closing was decided on; None: any. On another version it is Refused: what
    would have closed the first one is late now, and the late policy may drop it.

    `completeness`: what was known when this was decided; retained for the first version. If several replica
    sets state it, the lesser assurance counts. `epochs`: leader epoch of the last record below each offset.

    Partitions that are closed already keep the vector they have: the first to be persisted decides, and
    everybody else, a successor or a deposed leader included, aligns with it. Returns the record itself if
    nothing is new.
    """
    fresh = {p: offset for p, offset in vector.items() if p not in record.target}
    if not fresh:
        return record
    if version is not None and version != record.version:
        raise Refused(
            f"{record.cube}/{record.name} cannot be closed as it was decided",
            expected=f"version {version}",
            found=record.version,
            action="let the receiver align with that version first",
        )
    for partition, offset in fresh.items():
        floor = record.covered.get(partition, 0)
        if offset < floor:
            raise Refused(
                f"{record.cube}/{record.name} cannot close partition {partition}",
                expected=f"an offset at or beyond {floor}, which history covers",
                found=offset,
                action="let the receiver catch up first",
            )
    changed = take_event(record, SegmentEvent.CLOSE, now_ms, f"{by} closed {shown_vector(fresh)}")
    known = record.completeness if record.version else weaker(record.completeness, completeness)
    return msgspec.structs.replace(
        changed,
        target={**record.target, **fresh},
        target_epochs={**record.target_epochs, **{p: e for p, e in (epochs or {}).items() if p in fresh}},
        completeness=known,
    )


def add_part(
    record: SegmentRecord, part: StagedPart, *, partitions: Iterable[int], first: Offsets, now_ms: int
) -> SegmentRecord:
    """Add a staged part; REMOTE_PERSISTED once the parts of all `partitions` join up to the target.

    A part whose ranges are there already, or are in history already (a repeated upload, or one of a deposed
    leader that came second), changes nothing: its files have no reference and are cleaned up. One that
    overlaps in part is Refused: upload only what is missing, `missing_ranges` says what.
    """
    staged = _staged(record)
    built_on = record.built_on
    if part.ranges and all(
        piece.end <= built_on.get(piece.partition, -1)
        or any(_contains(h, piece) for h in staged.get(piece.partition, ()))
        for piece in part.ranges
    ):
        return record
    if record.state is not SegmentState.IMMUTABLE:
        raise Refused(
            f"{record.cube}/{record.name} does not take {part.path}",
            expected=SegmentState.IMMUTABLE.value,
            found=record.state.value,
        )
    for piece in part.ranges:
        start = built_on.get(piece.partition, first.get(piece.partition, 0))
        if not start <= piece.start <= piece.end <= record.target.get(piece.partition, -1):
            raise Refused(
                f"{record.cube}/{record.name} does not take {part.path}",
                expected=f"ranges from {start} up to the target {record.target}",
                found=piece,
            )
        beside = staged.setdefault(piece.partition, [])
        overlapping = [h for h in beside if _overlaps(h, piece)]
        if overlapping:
            raise Refused(
                f"{record.cube}/{record.name} does not take {part.path}: no event is held twice",
                expected=f"ranges beside {overlapping}",
                found=piece,
                action="read the record again and upload what is missing",
            )
        beside.append(piece)
    grown = msgspec.structs.replace(record, parts=(*record.parts, part))
    if not joined(grown, partitions=partitions, first=first):
        return grown
    return take_event(grown, SegmentEvent.PARTS_JOINED, now_ms, f"{len(grown.parts)} parts join")


def missing_ranges(
    record: SegmentRecord, *, partitions: Iterable[int], first: Offsets
) -> tuple[PartRange, ...]:
    """Return what no part holds yet between the offsets that it is built on and the target, for those of
    `partitions` with a target."""
    missing = []
    staged = _staged(record)
    for partition in sorted(set(partitions) & set(record.target)):
        at = record.built_on.get(partition, first.get(partition, 0))
        for piece in sorted(staged.get(partition, ()), key=lambda piece: (piece.start, piece.end)):
            if piece.start > at:
                missing.append(PartRange(partition, at, piece.start))
            at = max(at, piece.end)
        if at < record.target[partition]:
            missing.append(PartRange(partition, at, record.target[partition]))
    return tuple(missing)


def _staged(record: SegmentRecord) -> dict[int, list[PartRange]]:
    by_partition: dict[int, list[PartRange]] = {}
    for part in record.parts:
        for piece in part.ranges:
            by_partition.setdefault(piece.partition, []).append(piece)
    return by_partition


def _contains(staged: PartRange, piece: PartRange) -> bool:
    return staged.partition == piece.partition and staged.start <= piece.start and piece.end <= staged.end


def _overlaps(piece: PartRange, other: PartRange) -> bool:
    return piece.partition == other.partition and max(piece.start, other.start) < min(piece.end, other.end)


def joined(record: SegmentRecord, *, partitions: Iterable[int], first: Offsets) -> bool:
    """Return True if the parts hold every offset between what they are built on and the target, once."""
    by_partition = _staged(record)
    for partition in set(partitions) | set(record.target):
        if partition not in record.target:
            return False
        at = record.built_on.get(partition, first.get(partition, 0))
        for piece in sorted(by_partition.get(partition, ()), key=lambda piece: (piece.start, piece.end)):
            if piece.start != at:
                return False
            at = piece.end
        if at != record.target[partition]:
            return False
    return True


def known_losses(record: SegmentRecord, control: CubeControl) -> tuple[EventLoss, ...]:
    """Return what the record's versions lack, its next one included. `control`: of the cube."""
    fresh = losses_between(
        control.losses,
        segment=record.name,
        start_ms=record.start_ms,
        end_ms=record.end_ms,
        covered=record.covered,
        target=record.target,
    )
    own = version_losses(record, control)
    return (*record.losses, *(loss for loss in (*fresh, *own) if loss not in record.losses))


def version_losses(record: SegmentRecord, control: CubeControl) -> tuple[EventLoss, ...]:
    """Return the accepted losses of its READY versions that had to be rebuilt."""
    return tuple(
        loss
        for loss in control.version_losses
        if (loss.start_ms, loss.end_ms) == (record.start_ms, record.end_ms)
    )


def start_build(
    record: SegmentRecord, attempt: BuildAttempt, *, control: CubeControl | None = None
) -> SegmentRecord:
    """Name the attempt that may be promoted; an earlier one loses that right. `control`: of the cube.

    The number of the first version's events is unknown where some of a version are lost.
    """
    if record.state is not SegmentState.REMOTE_PERSISTED:
        raise Refused(
            f"{record.cube}/{record.name} cannot be built",
            expected=SegmentState.REMOTE_PERSISTED.value,
            found=record.state.value,
        )
    if attempt.version != record.version + 1:
        raise Refused("build of a wrong version", expected=record.version + 1, found=attempt.version)
    control = control or CubeControl()
    counted = not (record.base_lost and version_losses(record, control)) and not record.pending_batch
    return msgspec.structs.replace(
        record,
        build=attempt,
        losses=known_losses(record, control),
        first_events=record.first_events if counted else None,
    )


def fail_build(record: SegmentRecord, build_id: str, error: str) -> SegmentRecord:
    """Note why the newest attempt failed; the report of an older one, or of one that won, changes nothing."""
    build = record.build
    if record.state is not SegmentState.REMOTE_PERSISTED or build is None or build.build_id != build_id:
        return record
    return msgspec.structs.replace(record, build=msgspec.structs.replace(build, error=error))


def promote(record: SegmentRecord, build_id: str, *, events: int, now_ms: int) -> SegmentRecord:
    """Promote a build: version and vector change together. Promoting the version that is already READY
    changes nothing."""
    if record.state is SegmentState.READY and record.build is not None and record.build.build_id == build_id:
        return record
    if record.build is None or record.build.build_id != build_id:
        raise Refused(
            f"{record.cube}/{record.name} cannot promote build {build_id}",
            expected=f"the newest attempt {record.build.build_id if record.build else None}",
            action="a later attempt replaced this one: nothing to do",
        )
    changed = take_event(record, SegmentEvent.PROMOTE, now_ms, f"build {build_id}")
    return msgspec.structs.replace(
        changed,
        version=record.version + 1,
        location=record.build.location,
        covered={**record.covered, **record.target},
        covered_epochs={
            **{p: epoch for p, epoch in record.covered_epochs.items() if p not in record.target},
            **record.target_epochs,
        },
        target={},
        target_epochs={},
        parts=(),
        events=events,
        first_events=record.first_events if record.version else events,
        begins=_begins(record),
        base_lost=False,
        pending_batch="",
        batch=record.pending_batch or ("" if record.base_lost else record.batch),
        vectors=None,
        merged=(),
    )


def _begins(record: SegmentRecord) -> Offsets:
    """Return where the next version begins. A late delta begins behind what history covers; what older
    versions have not noted stays unknown."""
    of_parts: Offsets = {}
    for part in record.parts:
        for partition, offset in part.begins.items():
            if partition not in record.built_on:
                of_parts[partition] = min(offset, of_parts.get(partition, offset))
    return {**({} if record.base_lost else record.begins), **of_parts}


def lose_parts(record: SegmentRecord, lost: Mapping[str, str], *, now_ms: int, by: str) -> SegmentRecord:
    """Note that staged parts are missing or damaged (`lost`: path → why). Those of the version are uploaded
    again.

    All parts are uploaded, since a receiver keeps whole versions: it would have to read a single partition
    again from Kafka. Attempts that build the lost ones are not promoted. Nothing changes where the record has
    none of these parts any more, and where a batch brought them: nobody can upload it again.
    """
    lost_paths = [part.path for part in record.parts if part.path in lost]
    if not lost_paths or record.pending_batch:
        return record
    note = f"{by}: {len(lost_paths)} of {len(record.parts)} parts, {lost_paths[0]}: {lost[lost_paths[0]]}"
    changed = take_event(record, SegmentEvent.PARTS_LOST, now_ms, note)
    return msgspec.structs.replace(changed, parts=(), build=None)


def lose_base(record: SegmentRecord, why: str, *, now_ms: int, by: str) -> SegmentRecord:
    """Note that the READY version has lost what builds start from.

    The next version is made of parts that hold the whole segment, with the closed part of a late delta if
    there is one.

    Nothing changes where that is known, where there is no version, and where a batch takes its place.
    """
    if record.is_rebuilt or not record.version or record.state is SegmentState.PURGED:
        return record
    changed = take_event(record, SegmentEvent.BASE_LOST, now_ms, f"{by}: {why}")
    target = record.target or dict(record.covered)
    return msgspec.structs.replace(
        changed,
        base_lost=True,
        target=target,
        target_epochs=record.target_epochs or dict(record.covered_epochs),
        parts=(),
        build=None,
    )


def restore_base(
    record: SegmentRecord, *, partitions: Iterable[int], first: Offsets, now_ms: int, by: str
) -> SegmentRecord:
    """Note that the files are there again. The next version goes on from them and needs the late delta's
    parts only."""
    if not record.base_lost or record.pending_batch:
        return record
    changed = take_event(record, SegmentEvent.BASE_RESTORED, now_ms, by)
    restored = msgspec.structs.replace(changed, base_lost=False, parts=(), build=None)
    if not joined(restored, partitions=partitions, first=first):
        return restored
    return take_event(restored, SegmentEvent.PARTS_JOINED, now_ms, "no late event waits")


def requeue(record: SegmentRecord, *, now_ms: int, by: str) -> SegmentRecord:
    """Build the READY version again, from itself: the target is what it covers, no parts are needed.

    A segment that already waits for its build forgets a failed attempt. A batch that is not READY yet is
    withdrawn.
    """
    if record.pending_batch:
        return withdraw_batch(record, now_ms=now_ms, by=by)
    if record.state is SegmentState.REMOTE_PERSISTED:
        failed = record.build is not None and record.build.error is not None
        return msgspec.structs.replace(record, build=None) if failed else record
    changed = take_event(record, SegmentEvent.REQUEUE, now_ms, by)
    return msgspec.structs.replace(
        changed, target=dict(record.covered), target_epochs=dict(record.covered_epochs), parts=(), build=None
    )


def purge(record: SegmentRecord, *, now_ms: int, by: str) -> SegmentRecord:
    if record.state is SegmentState.PURGED:
        return record
    changed = take_event(record, SegmentEvent.PURGE, now_ms, by)
    return msgspec.structs.replace(changed, base_lost=False, pending_batch="", merged=())
