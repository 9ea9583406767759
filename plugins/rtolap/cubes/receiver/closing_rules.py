"""Decides which segments the leader of a replica set closes now, and at which offsets. Pure.

A segment's first version is closed when the first of these holds:
  1. the low watermark has reached its end plus the allowed lateness;
  2. the sliding window is over: the stream's own event time (`mark_ms`, the largest this receiver has seen)
     is at or beyond its end, and `sliding_window_ms` beyond what it was at the segment's last arrival, or
     `sliding_window_max_ms` beyond its end. Only while caught up: a replay is no silence;
  3. a person requested it (force).
For a cube with an application, this rule replaces 1 and 2: the application lets the window close, and this
receiver may close by that (`Takeover`: it has read what its predecessor reported). Neither silence nor a
sliding window closes such a segment.

A later version (late delta) is closed when its oldest local event has waited `merge_after_ms` of wall time,
or as soon as another replica set has closed its share.

A segment that another replica set has closed, and this one has not, follows rules 1 to 3 as well, also
without local data: the vector then says that there is nothing to come.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from rtolap.metadata.records import SegmentRecord
from rtolap.model.completeness import Completeness
from rtolap.model.cube import Cube
from rtolap.model.offsets import Offsets
from rtolap.model.segment import SegmentState

_CLOSABLE = (SegmentState.ACTIVE, SegmentState.IMMUTABLE, SegmentState.READY)


@dataclass(frozen=True)
class StreamClocks:
    """Clocks of the stream.

    Attributes:
        mark_ms: the largest event time seen.
        arrivals: segment start → `mark_ms` at the segment's last arrival.
        late_since: segment start → when the first event behind the READY version arrived, by `now_ms`.
    """

    mark_ms: int | None = None
    arrivals: Mapping[int, int] = field(default_factory=dict)
    late_since: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ByApplication:
    """The closing input of a cube with an application.

    Attributes:
        windows: the windows that the application approves, ascending.
        takeover: since when the application counts on this receiver.
        forced: what was known when a closing was last requested.
    """

    windows: tuple[Completeness, ...] = ()
    takeover: Takeover | None = None
    forced: Completeness | None = None


@dataclass(frozen=True)
class SegmentClosing:
    """A decision to add `vector` to the target of a segment.

    Attributes:
        version: the one that the decision was made on: what closes a first version is no late delta of it.
        completeness: the completeness of a first version, as an application decided it.
        epochs: leader epoch of the last record below the vector, where it is known.
    """

    start_ms: int
    vector: Offsets
    why: str
    version: int = 0
    completeness: Completeness | None = None
    epochs: Offsets = field(default_factory=dict)


def decide(
    cube: Cube,
    *,
    positions: Offsets,
    local: Collection[int],
    records: Mapping[int, SegmentRecord],
    marks: StreamClocks,
    low_watermark_ms: int | None,
    caught_up: bool,
    now_ms: int,
    force: Collection[int] = (),
    force_before_ms: int | None = None,
    application: ByApplication | None = None,
) -> tuple[SegmentClosing, ...]:
    """Return the closings that are due, ordered by segment start. `local`: segments that have local data."""
    closings: list[SegmentClosing] = []
    for start_ms in sorted({*local, *_open_elsewhere(records)}):
        record = records.get(start_ms)
        vector = _missing(record, positions)
        if not vector or not _may_close(record, vector):
            continue
        end_ms = start_ms + cube.segment.window_ms
        first = record is None or record.version == 0
        by_command = first and force_before_ms is not None and end_ms <= force_before_ms
        closing: SegmentClosing | None = None
        if by_command or (
            start_ms in force and (start_ms in local or (record is not None and record.target))
        ):
            known = _forced(cube, end_ms, positions, application, by_command=by_command) if first else None
            closing = SegmentClosing(start_ms, vector, "forced", completeness=known)
        elif record is not None and not first:
            why = _late_delta(cube, start_ms, record, start_ms in local, marks, now_ms)
            closing = SegmentClosing(start_ms, vector, why) if why else None
        elif cube.watermark is not None:
            closing = _by_application(
                cube, SegmentClosing(start_ms, vector, ""), end_ms, positions, application
            )
        else:
            why = _first_version(cube, start_ms, end_ms, marks, low_watermark_ms, caught_up)
            closing = SegmentClosing(start_ms, vector, why) if why else None
        if closing is not None:
            closings.append(replace(closing, version=0 if record is None else record.version))
    return tuple(closings)


def _by_application(
    cube: Cube, closing: SegmentClosing, end_ms: int, positions: Offsets, application: ByApplication | None
) -> SegmentClosing | None:
    """Decide by the first window that lets it close: of a window that ends earlier, no more is missing."""
    known = next((w for w in application.windows if w.window_end_ms >= end_ms), None) if application else None
    if known is None or application is None or application.takeover is None:
        return None
    if not application.takeover.may_close(end_ms, cube.segment.allowed_lateness_ms, positions):
        return None
    by = known.closed_by if known.approved_by is None else f"{known.closed_by} of {known.approved_by}"
    return replace(closing, why=f"{by}, application {known.application}", completeness=known)


def _forced(
    cube: Cube, end_ms: int, positions: Offsets, application: ByApplication | None, *, by_command: bool
) -> Completeness | None:
    """Return the completeness of a forced closing.

    It has numbers only if they come from a command to the coordinator and this receiver has read that far.
    """
    if cube.watermark is None:
        return None
    known = application.forced if application is not None and by_command else None
    if known is None:
        return Completeness(application=cube.watermark.application, window_end_ms=end_ms, closed_by="forced")
    read = (
        application is not None
        and application.takeover is not None
        and application.takeover.caught_up(positions)
    )
    return known if read else msgspec.structs.replace(known, expected_missing_ppm=None, bound_ppm=None)


def _open_elsewhere(records: Mapping[int, SegmentRecord]) -> Iterable[int]:
    return (start for start, record in records.items() if record.state is SegmentState.IMMUTABLE)


def _missing(record: SegmentRecord | None, positions: Offsets) -> Offsets:
    target = record.target if record is not None else {}
    return {partition: offset for partition, offset in positions.items() if partition not in target}


def _may_close(record: SegmentRecord | None, vector: Offsets) -> bool:
    """Return True if this receiver has caught up with history, and the segment can take a vector."""
    if record is None:
        return True
    behind = any(offset < record.covered.get(partition, 0) for partition, offset in vector.items())
    return record.state in _CLOSABLE and not behind


def _late_delta(
    cube: Cube, start_ms: int, record: SegmentRecord, has_data: bool, marks: StreamClocks, now_ms: int
) -> str | None:
    if record.target:
        return "another replica set closes its late delta"
    since_ms = marks.late_since.get(start_ms)
    if cube.late.policy == "drop" or not has_data or since_ms is None:
        return None
    if now_ms - since_ms >= cube.late.merge_after_ms:
        return f"late events have waited {now_ms - since_ms} ms"
    return None


def _first_version(
    cube: Cube, start_ms: int, end_ms: int, marks: StreamClocks, low_watermark_ms: int | None, caught_up: bool
) -> str | None:
    policy = cube.segment
    if low_watermark_ms is not None and low_watermark_ms >= end_ms + policy.allowed_lateness_ms:
        return f"low watermark {low_watermark_ms}"
    if not caught_up or marks.mark_ms is None or marks.mark_ms < end_ms:
        return None
    last_ms = marks.arrivals.get(start_ms)
    due_ms = end_ms + policy.sliding_window_max_ms
    if last_ms is not None:
        due_ms = min(due_ms, last_ms + policy.sliding_window_ms)
    if marks.mark_ms >= max(due_ms, end_ms):
        return f"sliding window: event time {marks.mark_ms}, last arrival at {last_ms}"
    return None


def low_watermark(published_ms: int | None, own: Mapping[int, tuple[int | None, bool]]) -> int | None:
    """Return the published low watermark, held back by this receiver's own partitions.

    `own`: partition → (largest event time seen, idle). A receiver that replays has less than its peer, whose
    report counts for the cube; it must not close at positions that lie behind the watermark.
    """
    if published_ms is None:
        return None
    marks = [mark_ms for mark_ms, idle in own.values() if not idle]
    if any(mark_ms is None for mark_ms in marks):
        return None
    return min((published_ms, *(mark_ms for mark_ms in marks if mark_ms is not None)))


TERM_BITS = 32  # of a generation; the assignment's epoch stands above them


def generation_of(base: int, assignment_epoch: int, term: int) -> int:
    """Return a generation that grows with each leader of the replica set, with each assignment, and over
    re-creations of the cube."""
    return (base + assignment_epoch) << TERM_BITS | term


@dataclass(frozen=True)
class Takeover:
    """The server's acceptance of the first report of a generation.

    Attributes:
        generation: of the report.
        partitions: the partitions of the report.
        watermark_ms: of the cube's source at that moment, or of its sink if that is larger.
        approved_until_ms: the end of what people had approved by then.
        ends: log ends that were looked up afterwards; None before that.
    """

    generation: int
    partitions: frozenset[int]
    watermark_ms: int | None = None
    approved_until_ms: int | None = None
    ends: Offsets | None = None

    def caught_up(self, positions: Mapping[int, int]) -> bool:
        """Return True if it holds everything that a former reader may have reported."""
        if self.ends is None or not positions.keys() <= self.partitions:
            return False
        return all(position >= self.ends.get(p, position + 1) for p, position in positions.items())

    def may_close(self, end_ms: int, lateness_ms: int, positions: Mapping[int, int]) -> bool:
        """Return True if the application approves the window at these positions."""
        if not positions.keys() <= self.partitions:
            return False
        known = (self.watermark_ms, end_ms + lateness_ms), (self.approved_until_ms, end_ms)
        later = all(at_ms is None or at_ms < needed_ms for at_ms, needed_ms in known)
        return later or self.caught_up(positions)
