"""Records as the messages that travel: nothing but translation."""

from __future__ import annotations

import msgspec

from rtolap.metadata.records import BuildAttempt, SegmentRecord
from rtolap.model.completeness import Completeness, EventLoss, is_breached, late_ppm
from rtolap.model.offsets import PartRange
from rtolap.model.segment import StagedPart
from rtolap.protocols.coordinator import messages as wire


def part_info(part: StagedPart) -> wire.PartInfo:
    return wire.PartInfo.model_validate(msgspec.to_builtins(part))


def build_info(build: BuildAttempt | None) -> wire.BuildInfo | None:
    return None if build is None else wire.BuildInfo.model_validate(msgspec.to_builtins(build))


def completeness_info(known: Completeness) -> wire.CompletenessInfo:
    return wire.CompletenessInfo.model_validate(msgspec.to_builtins(known))


def loss_info(loss: EventLoss) -> wire.LossInfo:
    return wire.LossInfo.model_validate(msgspec.to_builtins(loss))


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
        parts=tuple(part_info(part) for part in record.parts),
        build=build_info(record.build),
        events=record.events if record.version else None,
        staged_events=sum(part.events for part in record.parts) if record.parts else None,
        staged_rows=sum(part.rows for part in record.parts) if record.parts else None,
        completeness=None if record.completeness is None else completeness_info(record.completeness),
        late_events=record.late_events,
        late_ppm=late,
        breached=is_breached(record.completeness, late),
        lost=tuple(wire.PartitionRange.model_validate(msgspec.to_builtins(piece)) for piece in lost),
        losses=tuple(loss_info(loss) for loss in accepted),
        base_lost=record.base_lost,
        state_history=tuple(
            wire.HistoryEntry.model_validate(msgspec.to_builtins(line)) for line in record.state_history
        ),
    )
