"""Records as the messages that travel, and definitions as they come: nothing but translation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from rtolap.base.decoding import convert
from rtolap.base.errors import DefinitionError
from rtolap.metadata.records import BuildAttempt, SegmentRecord
from rtolap.model.completeness import EventLoss, is_breached, late_ppm
from rtolap.model.offsets import PartRange
from rtolap.protocols.coordinator import messages as wire
from rtolap.protocols.rest.messages import Message

M = TypeVar("M", bound=Message)
S = TypeVar("S", bound=msgspec.Struct)


def as_message(kind: type[M], record: msgspec.Struct) -> M:
    """Return a part of a record as the message that has the same fields."""
    return kind.model_validate(msgspec.to_builtins(record))


def parsed(definition: wire.Definition, kind: type[S]) -> S:
    """Return a definition that has come. Raises DefinitionError for what is none of that kind."""
    try:
        return convert(definition, kind)
    except msgspec.ValidationError as error:
        raise DefinitionError(f"not a {kind.__name__.lower()} definition", found=str(error)) from error


def build_info(build: BuildAttempt | None) -> wire.BuildInfo | None:
    return None if build is None else as_message(wire.BuildInfo, build)


def completeness_info(record: SegmentRecord) -> wire.CompletenessInfo | None:
    known = record.completeness
    return None if known is None else as_message(wire.CompletenessInfo, known)


def segment_info(
    record: SegmentRecord, *, losses: tuple[EventLoss, ...] | None = None, lost: tuple[PartRange, ...] = ()
) -> wire.SegmentInfo:
    """Return what is shown of a segment. `losses`: those of the next version included, where that is known;
    `lost`: not accepted yet."""
    accepted = record.losses if losses is None else losses
    late = None if record.late_events is None else late_ppm(record.late_events, record.events)
    return wire.SegmentInfo(
        cube=record.cube,
        segment=record.name,
        start_ms=record.start_ms,
        end_ms=record.end_ms,
        state=record.state.value,
        version=record.version,
        location=record.location,
        covered=record.covered,
        target=record.target,
        parts=tuple(as_message(wire.PartInfo, part) for part in record.parts),
        build=build_info(record.build),
        events=record.events if record.version else None,
        staged_events=sum(part.events for part in record.parts) if record.parts else None,
        staged_rows=sum(part.rows for part in record.parts) if record.parts else None,
        completeness=completeness_info(record),
        late_events=record.late_events,
        late_ppm=late,
        breached=is_breached(record.completeness, late),
        lost=tuple(as_message(wire.PartitionRange, piece) for piece in lost),
        losses=tuple(as_message(wire.LossInfo, loss) for loss in accepted),
        base_lost=record.base_lost,
        pending_batch=record.pending_batch,
        batch=record.batch,
        merged=tuple(each.level for each in record.merged),
        state_history=tuple(as_message(wire.HistoryEntry, line) for line in record.state_history),
    )


def segment_columns(
    records: Sequence[SegmentRecord], noted: tuple[wire.SegmentInfo, ...]
) -> wire.SegmentColumns:
    """Return records in the order of their starts, as columns. `noted`: see the message."""
    return wire.SegmentColumns(
        segment=tuple(record.name for record in records),
        start_ms=tuple(record.start_ms for record in records),
        end_ms=tuple(record.end_ms for record in records),
        state=tuple(record.state.value for record in records),
        version=tuple(record.version for record in records),
        parts=tuple(len(record.parts) for record in records),
        events=tuple(record.events if record.version else None for record in records),
        late_events=tuple(record.late_events for record in records),
        noted=noted,
    )


def is_noted(record: SegmentRecord) -> bool:
    """Return whether a settled segment has something that a person should look at, but for its losses."""
    late = None if record.late_events is None else late_ppm(record.late_events, record.events)
    failed = record.build is not None and record.build.error is not None
    return bool(failed or record.base_lost or record.batch or is_breached(record.completeness, late))
