"""Events that neither receivers nor Kafka hold any more: which segments wait for them, and who accepts the
loss.

Receivers report which offsets they have to read and cannot. No report is stored: it ends when a receiver that
holds them is back. What a person accepts is stored with the cube: receivers pass over these offsets, what is
left is uploaded and built, and the segments' records and manifests say what they lack.

Of a READY version that has lost its base cuboid, what Kafka no longer holds is looked up here: receivers,
which read it again, lack nothing else for it. What is accepted of it counts for that segment only.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rtolap.base.errors import Corrupted, NotFound, Refused, RtolapError
from rtolap.coordinator.assignment import TopicsOf
from rtolap.coordinator.heartbeats import Heartbeats
from rtolap.coordinator.views import Views
from rtolap.metadata import segments
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.model.completeness import EventLoss, behind_losses, offsets_text
from rtolap.model.offsets import Offsets, PartRange
from rtolap.model.segment import SegmentRange, SegmentState, parse_segment_name
from rtolap.model.table import Table

_WAITING = (SegmentState.IMMUTABLE, SegmentState.REMOTE_PERSISTED)
_NAMES_MAX = 5  # of segments in a problem
LOG_BEGINS_EVERY_S = 1.0  # of Kafka, where a log begins


class Losses:
    def __init__(
        self, metadata: ClusterMetadata, views: Views, heartbeats: Heartbeats, topics: TopicsOf
    ) -> None:
        self._metadata = metadata
        self._views = views
        self._heartbeats = heartbeats
        self._topics = topics
        # cluster and topic → when it was asked, where its log begins
        self._begins: dict[tuple[str, str], tuple[float, Offsets]] = {}

    def lost(self, cube: str, control: CubeControl) -> tuple[PartRange, ...]:
        """Return offsets that no server holds and that were not accepted as lost, by partition."""
        return _without((piece for piece, _ in self._heartbeats.lost(cube, control).values()), control.losses)

    def lost_of(self, record: SegmentRecord, control: CubeControl) -> tuple[PartRange, ...]:
        """Return the ranges that a closed segment waits for. `record`: with its vectors."""
        return (*_missing(record, control, self.lost(record.cube, control)), *self._gone(record, control))

    def problem(self, cube: str, control: CubeControl, records: Iterable[SegmentRecord]) -> str | None:
        records = list(records)
        lost = self.lost(cube, control)
        try:
            whole = self._closed_with_vectors(records)
        except Corrupted as error:
            return str(error)
        problems = [self._version_problem(record, control) for record in whole if record.base_lost]
        if lost:
            problems.insert(0, self._problem(cube, control, whole, lost))
        more = f"; and {len(problems) - _NAMES_MAX} more" if len(problems) > _NAMES_MAX else ""
        return "; ".join(problems[:_NAMES_MAX]) + more if problems else None

    def _closed_with_vectors(self, records: Iterable[SegmentRecord]) -> list[SegmentRecord]:
        """Return the records, those of segments that wait for events with their vectors."""
        return [
            self._metadata.whole_segment(record) if record.state is SegmentState.IMMUTABLE else record
            for record in records
        ]

    def _version_problem(self, record: SegmentRecord, control: CubeControl) -> str:
        name = f"version {record.version} of segment {record.name} has lost its base cuboid"
        gone = self._gone(record, control)
        if not gone:
            return f"{name}: it is read again from Kafka and rebuilt"
        return (
            f"{name}, and Kafka no longer holds offsets {offsets_text(gone)}: restore the files of "
            f"{record.location} and `rtolap segments requeue {record.cube} {record.name}`, or "
            f"`rtolap segments accept-loss {record.cube} {record.name} --reason TEXT` builds what is left"
        )

    def _problem(
        self, cube: str, control: CubeControl, records: list[SegmentRecord], lost: tuple[PartRange, ...]
    ) -> str:
        names = [record.name for record in records if _missing(record, control, lost)]
        sets = sorted({name for _, name in self._heartbeats.lost(cube, control).values()})
        more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
        shown = f"segments {', '.join(names[:_NAMES_MAX])}{more}" if names else "segments that are open yet"
        first = names[0] if names else "SEGMENT"
        return (
            f"lost: neither receivers nor Kafka hold offsets {offsets_text(lost)}; {shown} wait for them: "
            f"start the receivers of {', '.join(sets)} that are down, one may hold them; if none does, "
            f"`rtolap segments accept-loss {cube} {first} --reason TEXT` continues history without them"
        )

    def accept(self, cube: str, segment: str, *, by: str, reason: str) -> SegmentRecord:
        """Pass over everything that is lost now, on behalf of a segment that waits for it or is still open.

        A repetition changes nothing. Refused: nothing that this segment may need is lost. NotYet: a living
        receiver was not heard, and may hold the events.
        """
        definition = self._metadata.cube(cube)
        window = parse_segment_name(segment)
        control, records = self._views.fresh(cube)
        record = records.get(segment)
        if record is None:
            window_ms = definition.segment.window_ms
            if window.start_ms % window_ms or window.end_ms - window.start_ms != window_ms:
                raise NotFound(
                    f"{segment} is not a segment of cube {cube}", expected=f"{window_ms} ms windows"
                )
            record = SegmentRecord(cube=cube, start_ms=window.start_ms, end_ms=window.end_ms)
        record = self._metadata.whole_segment(record)
        if gone := self._gone(record, control):
            self._accept_gone(record, gone, by, reason)
            return record
        lost = self._lost_by_now(cube, control)
        open_yet = record.state is SegmentState.ACTIVE
        if not (lost if open_yet else _missing(record, control, lost)):
            if self.known(record, control) or (open_yet and _accepted(control, window)):
                return record
            raise Refused(
                f"segment {cube}/{segment} ({record.state.value}) is not known to wait for lost events",
                expected="a receiver that is FAILED because Kafka no longer holds its offsets",
                found=f"lost now: {offsets_text(lost)}" if lost else "none",
                action="`rtolap describe` shows what the cube waits for, `rtolap segments requeue` has parts "
                "uploaded again",
            )
        self._heartbeats.check_heard(
            cube, control, self._metadata.living_members(), f"which events of {cube} are lost"
        )
        known = self._closed_with_vectors(records.values())
        loss = _loss(control, window, lost, known, self._metadata.clock.now_ms(), by, reason)

        def accepted(before: CubeControl) -> CubeControl:
            if not _without(lost, before.losses):
                return before  # another request was first
            unpurged = _unpurged(before.losses, before.horizon_ms)
            return msgspec.structs.replace(before, losses=(*unpurged, loss))

        self._metadata.update_control(cube, accepted)
        return record

    def known(self, record: SegmentRecord, control: CubeControl) -> tuple[EventLoss, ...]:
        """Return the accepted losses of a segment, those of the version to be built next included.

        `record`: with its vectors.
        """
        return segments.known_losses(record, control)

    def _gone(self, record: SegmentRecord, control: CubeControl) -> tuple[PartRange, ...]:
        """Return the ranges to be read again of a version that has lost its base cuboid, and that Kafka no
        longer holds."""
        if not record.base_lost or record.state is not SegmentState.IMMUTABLE:
            return ()
        begins = self._log_begins(self._metadata.schema(record.cube).table)
        needed = segments.missing_ranges(record, partitions=record.covered, first=control.first_offsets)
        return _without(
            (
                PartRange(piece.partition, start, end)
                for piece in needed
                for start in (max(piece.start, record.begins.get(piece.partition, 0)),)
                for end in (min(piece.end, record.covered[piece.partition], begins.get(piece.partition, 0)),)
                if start < end
            ),
            self.known(record, control),
        )

    def _accept_gone(self, record: SegmentRecord, gone: tuple[PartRange, ...], by: str, reason: str) -> None:
        loss = EventLoss(
            ranges=gone,
            start_ms=record.start_ms,
            end_ms=record.end_ms,
            by=by,
            reason=reason,
            at_ms=self._metadata.clock.now_ms(),
        )

        def accepted(before: CubeControl) -> CubeControl:
            if not _without(gone, segments.version_losses(record, before)):
                return before  # another request was first
            unpurged = _unpurged(before.version_losses, before.horizon_ms)
            return msgspec.structs.replace(before, version_losses=(*unpurged, loss))

        self._metadata.update_control(record.cube, accepted)

    def _log_begins(self, table: Table) -> Offsets:
        """Return where logs began a moment ago; empty where Kafka does not tell."""
        now_s = self._metadata.clock.monotonic_s()
        place = (table.kafka_cluster, table.topic)
        fetched_s, begins = self._begins.get(place, (float("-inf"), {}))
        if now_s - fetched_s >= LOG_BEGINS_EVERY_S:
            try:
                begins = self._topics(table.kafka_cluster).offsets(table.topic, "earliest")
            except RtolapError:
                begins = {}
            self._begins[place] = (now_s, begins)
        return begins

    def _lost_by_now(self, cube: str, control: CubeControl) -> tuple[PartRange, ...]:
        """Return the losses with what Kafka has dropped since the receivers have looked: lest they stumble
        again at once."""
        lost = self.lost(cube, control)
        if not lost:
            return ()
        table = self._metadata.schema(cube).table
        try:
            begins = self._topics(table.kafka_cluster).offsets(table.topic, "earliest")
        except RtolapError:
            return lost  # what receivers have reported stands
        return tuple(
            PartRange(piece.partition, piece.start, max(piece.end, begins.get(piece.partition, 0)))
            for piece in lost
        )


def _without(ranges: Iterable[PartRange], losses: tuple[EventLoss, ...]) -> tuple[PartRange, ...]:
    left = (
        PartRange(piece.partition, behind_losses(losses, piece.partition, piece.start), piece.end)
        for piece in ranges
    )
    return tuple(sorted((piece for piece in left if piece.start < piece.end), key=lambda one: one.partition))


def _missing(record: SegmentRecord, control: CubeControl, lost: Iterable[PartRange]) -> tuple[PartRange, ...]:
    """Return the part of `lost` that a closed segment needs and no staged part of it holds."""
    if record.state is not SegmentState.IMMUTABLE:
        return ()
    late = msgspec.structs.replace(record, base_lost=False)  # what history covers is looked up by `_gone`
    needed = segments.missing_ranges(late, partitions=record.target, first=control.first_offsets)
    return tuple(
        PartRange(piece.partition, start, end)
        for piece in lost
        for need in needed
        if need.partition == piece.partition
        for start, end in ((max(piece.start, need.start), min(piece.end, need.end)),)
        if start < end
    )


def _unpurged(losses: tuple[EventLoss, ...], horizon_ms: int | None) -> tuple[EventLoss, ...]:
    return tuple(loss for loss in losses if horizon_ms is None or loss.end_ms > horizon_ms)


def _accepted(control: CubeControl, window: SegmentRange) -> bool:
    return any(loss.overlaps(window.start_ms, window.end_ms) for loss in control.losses)


def _loss(
    control: CubeControl,
    window: SegmentRange,
    lost: tuple[PartRange, ...],
    records: list[SegmentRecord],
    now_ms: int,
    by: str,
    reason: str,
) -> EventLoss:
    """Return a loss from the first segment that waits for the events, or is open, to the one that is open
    now: the events were written before."""
    touched = [record for record in records if _missing(record, control, lost)]
    window_ms = window.end_ms - window.start_ms
    history = [record.end_ms for record in records if record.version or record.state in _WAITING]
    open_from_ms = max(history) if history else control.horizon_ms or 0
    start_ms = min((window.start_ms, open_from_ms, *(record.start_ms for record in touched)))
    ends = (
        window.end_ms,
        *(record.end_ms for record in touched),
        now_ms // window_ms * window_ms + window_ms,
    )
    whole = (
        record.name
        for record in records
        if record.state in _WAITING and record not in touched and start_ms <= record.start_ms < max(ends)
    )
    return EventLoss(
        ranges=lost,
        start_ms=start_ms,
        end_ms=max(ends),
        whole=tuple(whole),
        by=by,
        reason=reason,
        at_ms=now_ms,
    )
