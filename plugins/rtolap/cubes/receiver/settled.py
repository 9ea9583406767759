"""Settled segments as a receiver sees them: looked up when an event or a statement needs one.

A receiver follows what is open. Of history it needs the version of each segment that a statement asks about,
the vectors of the segments that late or repeated events fall into, and the frontier, which says from where on
no event can be in history already. Neither grows with the time that history covers, until it is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, Protocol

from rtolap.base.errors import Corrupted, Unavailable
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import SegmentRecord
from rtolap.metadata.segment_format.pages import HistoryFrontier
from rtolap.metadata.view import SegmentView
from rtolap.model.segment import SegmentRange, SegmentState


class SettledVersion(NamedTuple):
    """The version of a segment, as a page states it."""

    version: int
    purged: bool


_NO_FRONTIER = HistoryFrontier()


class SettledSegments(Protocol):
    """The settled segments of a cube. It is thread-safe.

    What is not there yet is read: every method but `frontier` may raise Unavailable. What its methods do here
    is what they do where there are none.
    """

    @property
    def frontier(self) -> HistoryFrontier:
        """Return how far history has come, no older than any version that this has returned."""
        return _NO_FRONTIER

    def record(self, start_ms: int) -> SegmentRecord | None:
        """Return a segment's record with its vectors, None where it has none."""
        return None

    def versions(self, start_ms: int | None, end_ms: int | None) -> Mapping[int, SettledVersion]:
        """Return the versions of the segments of that time, and maybe of more, by start."""
        return {}

    def newest_first(self) -> Iterator[SegmentRecord]:
        """Yield all READY records with their vectors."""
        return iter(())


class NoSettledSegments(SettledSegments):
    """Stands for a history whose records all have nodes of their own."""


NO_SETTLED_SEGMENTS = NoSettledSegments()


class PagedSegments:
    """Implements `SettledSegments` on a view that reads pages when they are asked for."""

    def __init__(self, metadata: ClusterMetadata, view: SegmentView, window_ms: int) -> None:
        self._metadata = metadata
        self._view = view
        self._window_ms = window_ms
        self._versions: tuple[object, Mapping[int, SettledVersion]] = (None, {})

    @property
    def frontier(self) -> HistoryFrontier:
        return self._view.known()[1].frontier

    def record(self, start_ms: int) -> SegmentRecord | None:
        found = self._view.segment(SegmentRange(start_ms, start_ms + self._window_ms))
        return None if found is None else self.whole(found)

    def versions(self, start_ms: int | None, end_ms: int | None) -> Mapping[int, SettledVersion]:
        records = self._view.records(start_ms, end_ms)
        of, versions = self._versions
        if of is not records:
            versions = {
                record.start_ms: SettledVersion(record.version, record.state is SegmentState.PURGED)
                for record in records.values()
            }
            self._versions = (records, versions)
        return versions

    def newest_first(self) -> Iterator[SegmentRecord]:
        for record in reversed(self._view.records().values()):
            if record.state is SegmentState.READY:
                yield self.whole(record)

    def whole(self, record: SegmentRecord) -> SegmentRecord:
        """Return the record with its vectors.

        Raises Unavailable until they can be read, also where a file has to be restored first: the cube waits,
        and goes on by itself.
        """
        try:
            return self._metadata.whole_segment(record)
        except Corrupted as error:
            raise Unavailable(
                error.message, expected=error.expected, found=error.found, action=error.action
            ) from error


def named_beyond(
    settled: SettledSegments, offsets: Mapping[int, int], horizon_ms: int | None, named: Collection[str]
) -> str | None:
    """Return the newest segment whose version counts an event at or beyond one of these offsets.

    None where none does, or where some are `named` already: versions are read for a name only.
    """
    frontier = settled.frontier.covered
    if named or all(frontier.get(partition, 0) <= offset for partition, offset in offsets.items()):
        return None
    for record in settled.newest_first():
        if horizon_ms is not None and record.end_ms <= horizon_ms:
            return None
        if any(record.covered.get(partition, 0) > offset for partition, offset in offsets.items()):
            return record.name
    return None
