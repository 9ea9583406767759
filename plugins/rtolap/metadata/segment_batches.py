"""A segment's record and batches: pure functions, as those of `segments`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from rtolap.base.errors import Refused
from rtolap.metadata.records import SegmentRecord
from rtolap.metadata.segment_events import shown_vector, take_event
from rtolap.model.offsets import Offsets
from rtolap.model.segment import SegmentEvent, SegmentState, StagedPart

_NOTHING: Mapping[int, int] = {}


def covered_to_be(record: SegmentRecord) -> Offsets:
    """Return the vector of the next version."""
    return {**record.covered, **record.target}


def replace_by_batch(
    record: SegmentRecord,
    batch: str,
    part: StagedPart,
    *,
    version: int,
    first: Offsets,
    filled: Mapping[int, int] = _NOTHING,
    now_ms: int,
    by: str,
) -> SegmentRecord:
    """Build the next version out of a batch that says what the segment holds below its vector.

    The vector stays what it is: of a version that is being closed, what was closed so far. A segment without
    a record gets the offsets at which the cube begins, so whatever the topic brings is beyond it. A
    repetition changes nothing; another batch takes the place of one that is not READY yet.

    Args:
        part: holds the segment's events. Its ranges begin where the cube begins, and end at the vector.
        version: the one that the batch was staged for.
        first: where the cube begins, by partition.
        filled: where the history ends that the batch stands for, of a revision that is filled.
    """
    vector = vector_of_batch(record, first, filled)
    if batch in (record.pending_batch, record.batch):
        return record
    if record.version + 1 != version or _ends(part) != vector:
        raise Refused(
            f"{record.cube}/{record.name} has changed since batch {batch} was planned",
            expected=f"version {version} up to {shown_vector(_ends(part))}",
            found=f"version {record.version + 1} up to {shown_vector(vector)}",
            action="plan and stage the batch again",
        )
    if record.state is SegmentState.IMMUTABLE and not record.version:
        raise Refused(
            f"{record.cube}/{record.name} cannot be replaced yet",
            expected="a segment that all its replica sets have closed",
            found=SegmentState.IMMUTABLE.value,
            action="wait until it is READY",
        )
    changed = take_event(record, SegmentEvent.REPLACE, now_ms, f"{by}: batch {batch}")
    return msgspec.structs.replace(
        changed,
        pending_batch=batch,
        target=vector,
        target_epochs={
            p: e for p, e in {**record.covered_epochs, **record.target_epochs}.items() if p in vector
        },
        parts=(part,),
        build=None,
    )


def vector_of_batch(record: SegmentRecord, first: Offsets, filled: Mapping[int, int] = _NOTHING) -> Offsets:
    """Return the vector below which a batch says what the segment holds: see `replace_by_batch`."""
    own = dict(first) if record.state is SegmentState.ACTIVE else covered_to_be(record)
    return {partition: max(offset, filled.get(partition, offset)) for partition, offset in own.items()}


def older_vector(records: Iterable[SegmentRecord], start_ms: int, end_ms: int) -> Offsets:
    """Return the largest offsets below which history of the older revision holds segments of this range.

    Args:
        records: the older revision's, with vectors.
    """
    vector: Offsets = {}
    for record in records:
        if record.start_ms < end_ms and record.end_ms > start_ms:
            for partition, offset in record.covered.items():
                vector[partition] = max(offset, vector.get(partition, offset))
    return vector


def withdraw_batch(record: SegmentRecord, *, now_ms: int, by: str) -> SegmentRecord:
    """Take a batch back that is not READY yet: the version before goes on, with the late events that were
    closed. A first version has none before it: its batch stays, and forgets a failed attempt."""
    if not record.pending_batch:
        return record
    if not record.version:
        failed = record.build is not None and record.build.error is not None
        return msgspec.structs.replace(record, build=None) if failed else record
    left = msgspec.structs.replace(record, pending_batch="", parts=(), build=None)
    if not record.base_lost and record.target == record.covered:
        return left
    return take_event(left, SegmentEvent.WITHDRAWN, now_ms, f"{by}: batch {record.pending_batch}")


def _ends(part: StagedPart) -> Offsets:
    return {piece.partition: piece.end for piece in part.ranges}
