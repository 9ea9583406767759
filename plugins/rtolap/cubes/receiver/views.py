"""The cluster as one cube's core sees it at each step: a value, made by the service or by a test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from rtolap.cubes.receiver.closing_rules import Takeover, generation_of
from rtolap.cubes.receiver.settled import NO_SETTLED_SEGMENTS, PagedSegments, SettledSegments
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl, NextAssignment, SegmentRecord
from rtolap.metadata.store import Election
from rtolap.metadata.view import KnownSegments, SegmentView
from rtolap.model.completeness import Completeness
from rtolap.model.offsets import Offsets


class ViewSource:
    """`view` on the core thread; `control` and `refresh` from any. `ahead`: see `following`."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        cube: str,
        cube_id: str,
        election: Election,
        window_ms: int,
        ahead: NextAssignment | None = None,
    ) -> None:
        self._metadata = metadata
        self._ahead = ahead
        self._cube = cube
        self._election = election
        self._segments = SegmentView(metadata, cube, cube_id, by_page=True, with_frontier=True)
        self._settled = PagedSegments(metadata, self._segments, window_ms)
        published = metadata.published_watermark(cube)
        self._low_watermark_ms = published.low_watermark_ms
        self._windows = published.windows
        self._takeover: Takeover | None = None
        self._converted: tuple[object, Mapping[int, SegmentRecord]] = (None, {})
        self._start_offsets: Offsets = {}
        self._start_epoch = -1

    def view(self) -> CubeView:
        control, known = self._known()
        connected = self._metadata.store.connected()
        if control.enabled and control.assignment_epoch != self._start_epoch and connected:
            # First where history ends, then the records: never the other way round, or events between
            # an older view of history and a newer start would be nowhere.
            self._start_offsets = self._metadata.replay_from(self._cube)
            self._segments.refresh()
            self._start_epoch = control.assignment_epoch
            control, known = self._known()
        return CubeView(
            control=control,
            records=self._by_start(known.open),
            settled=self._settled,
            start_offsets=self._start_offsets,
            leading=self._election.is_leader(),
            connected=connected,
            low_watermark_ms=self._low_watermark_ms,
            windows=self._windows,
            generation=self.generation(control),
            takeover=self._takeover,
        )

    def generation(self, control: CubeControl) -> int | None:
        """Return the generation under which this receiver reports its reading for that assignment.

        None means that it does not lead.
        """
        term = self._election.term()
        if term is None or not control.assignment_epoch:
            return None
        return generation_of(control.generation_base, control.assignment_epoch, term)

    def snapshot(self) -> tuple[CubeControl, Mapping[int, SegmentRecord]]:
        """Return the control record and the open segments by start, of one moment."""
        control, known = self._known()
        return control, self._by_start(known.open)

    def _known(self) -> tuple[CubeControl, KnownSegments]:
        control, known = self._segments.known()
        return following(control, self._ahead), known

    def control(self) -> CubeControl:
        """Return the control record as it stands, whatever this receiver follows."""
        return self._segments.known()[0]

    def refresh(self) -> None:
        self._segments.refresh()

    def offer_watermark(self, low_watermark_ms: int) -> None:
        """Offer a watermark. A smaller one than before is not taken."""
        self._low_watermark_ms = max(low_watermark_ms, self._low_watermark_ms or low_watermark_ms)

    def offer_windows(self, windows: tuple[Completeness, ...]) -> None:
        """Take the windows that an application approves; windows older than before are not taken."""
        if windows and (not self._windows or windows[-1].window_end_ms > self._windows[-1].window_end_ms):
            self._windows = windows

    def offer_takeover(self, takeover: Takeover | None) -> None:
        self._takeover = takeover

    def close(self) -> None:
        self._segments.close()

    def _by_start(self, opened: Mapping[str, SegmentRecord]) -> Mapping[int, SegmentRecord]:
        """Return them with their vectors; the same object for the same records."""
        of, converted = self._converted
        if of is not opened:
            converted = {record.start_ms: self._settled.whole(record) for record in opened.values()}
            self._converted = (opened, converted)
        return converted


_NO_CONTROL = CubeControl()


def following(control: CubeControl, ahead: NextAssignment | None) -> CubeControl:
    """Return the control that a receiver follows which is ahead of it, by `ahead`, until it stands.

    The epoch of a plan is of no other assignment: once the control has it, or a later one, that counts.
    """
    if ahead is None or not control.assignment_epoch or control.assignment_epoch >= ahead.epoch:
        return control
    return msgspec.structs.replace(control, assignment=ahead.assignment, assignment_epoch=ahead.epoch)


@dataclass(frozen=True)
class CubeView:
    """The cluster's decisions about a cube, as this receiver knows them.

    Attributes:
        records: of open segments, by start; an unchanged mapping is the same object as before.
        settled: all other segments.
        start_offsets: where a partition starts for which this receiver has no position.
        leading: True if this receiver leads its replica set, as far as its live session knows.
        connected: False: consume and serve, but close nothing.
        low_watermark_ms: the published one.
        windows: the newest windows that the cube's application approves, ascending.
        generation: the generation under which this receiver's reading is reported to it; None while it does
            not lead.
        takeover: since when it counts on that reading; None before.
    """

    control: CubeControl = _NO_CONTROL
    records: Mapping[int, SegmentRecord] = field(default_factory=dict)
    settled: SettledSegments = NO_SETTLED_SEGMENTS
    start_offsets: Offsets = field(default_factory=dict)
    leading: bool = False
    connected: bool = True
    low_watermark_ms: int | None = None
    windows: tuple[Completeness, ...] = ()
    generation: int | None = None
    takeover: Takeover | None = None

    def record(self, start_ms: int) -> SegmentRecord | None:
        """Return a segment's record, open or settled. Raises Unavailable where it has to be read first."""
        return self.records.get(start_ms) or self.settled.record(start_ms)

    def with_local(self, starts: Iterable[int]) -> Mapping[int, SegmentRecord]:
        """Return the open segments and those of `starts` that have a record. Raises Unavailable."""
        further = {
            start: record
            for start in starts
            if start not in self.records and (record := self.settled.record(start)) is not None
        }
        return {**self.records, **further} if further else self.records
