"""Pages of a cube's history: small records of settled segments, many in one node, by ranges of time.

A segment is settled while it is READY or PURGED: nothing is added to it until it is closed again. Its record
then stands in the page of its time, without vectors (see `vectors`) and with the newest lines of its state
history only. Who starts reads what is open, and a page once something needs it.

The frontier holds, by partition, the largest offset that any version has ever covered. A receiver whose
positions are beyond it has reached every vector of history without reading one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping

import msgspec

from rtolap.base.errors import Corrupted
from rtolap.base.undecodable import decode_own
from rtolap.metadata import codec
from rtolap.metadata.records import HistoryEntry, SegmentRecord
from rtolap.model.offsets import Offsets
from rtolap.model.segment import SegmentEvent, SegmentRange, SegmentState

PAGE_SEGMENTS = 128  # of up to 2 kB each: far below what a node holds, also where they compress badly
RECORD_BYTES_MAX = 2048
_LINES_MAX = 6  # of the state history
_NOTE_CHARACTERS_MAX = 80
_SETTLED = (SegmentState.READY, SegmentState.PURGED)


class SegmentPage(msgspec.Struct, frozen=True):
    """The settled segments of one range of time.

    Attributes:
        records: their records as a JSON list by start, compressed by zlib.
    """

    records: bytes


class HistoryFrontier(msgspec.Struct, frozen=True):
    """The offsets that history has reached, by partition.

    Attributes:
        covered: partition → largest offset that a version covers, or has covered.
        epochs: leader epoch of the last record below it, where it is known.
    """

    covered: Offsets = {}
    epochs: Offsets = {}

    def beyond(self, record: SegmentRecord) -> HistoryFrontier:
        """Return the frontier with the vectors of that READY version; itself where it is there already."""
        further = {p: at for p, at in record.covered.items() if at > self.covered.get(p, -1)}
        if not further:
            return self
        epochs = {p: epoch for p, epoch in self.epochs.items() if p not in further}
        fresh = {p: epoch for p, epoch in record.covered_epochs.items() if p in further}
        return HistoryFrontier({**self.covered, **further}, {**epochs, **fresh})


def is_settled(record: SegmentRecord) -> bool:
    return record.state in _SETTLED


def page_of(window: SegmentRange) -> SegmentRange:
    """Return the range of time of the page that holds this segment. All segments of a cube are as long."""
    page_ms = (window.end_ms - window.start_ms) * PAGE_SEGMENTS
    start_ms = window.start_ms // page_ms * page_ms
    return SegmentRange(start_ms, start_ms + page_ms)


def encode_page(records: Mapping[str, SegmentRecord]) -> bytes:
    ordered = [record for _, record in sorted(records.items())]
    return codec.encode(SegmentPage(zlib.compress(msgspec.json.encode(ordered))))


def decode_page(data: bytes, path: str) -> dict[str, SegmentRecord]:
    """Return the records by name. Raises Corrupted."""
    page = codec.decode(data, SegmentPage, path)
    try:
        text = zlib.decompress(page.records)
    except zlib.error as error:
        raise Corrupted(f"{path} does not hold compressed records", found=str(error)) from error
    records = decode_own(text, list[SegmentRecord], f"{path} does not hold records of segments")
    return {record.name: record for record in records}


def paged(record: SegmentRecord) -> SegmentRecord:
    """Return the record as it stands in its page: without anything that grows with partitions."""
    build = record.build
    lines = _told(record.state_history)[-_LINES_MAX:]
    if build is not None and build.error is not None:
        build = msgspec.structs.replace(build, error=_cut(build.error))
    small = msgspec.structs.replace(
        record,
        covered={},
        covered_epochs={},
        begins={},
        losses=(),
        target={},
        target_epochs={},
        parts=(),
        build=build,
        state_history=lines,
    )
    while len(codec.encode(small)) > RECORD_BYTES_MAX and len(small.state_history) > 1:
        small = msgspec.structs.replace(small, state_history=small.state_history[1:])
    return small


def opened(record: SegmentRecord) -> SegmentRecord:
    """Return the record as it stands in a node of its own: vectors that it names by checksum stay outside."""
    if record.vectors is None:
        return record
    return msgspec.structs.replace(record, covered={}, covered_epochs={}, begins={})


def overlapping(
    pages: Iterable[SegmentRange], start_ms: int | None, end_ms: int | None
) -> tuple[SegmentRange, ...]:
    """Return the pages with a part in the range, ascending; None: without a bound."""
    return tuple(
        page
        for page in sorted(pages)
        if (end_ms is None or page.start_ms < end_ms) and (start_ms is None or page.end_ms > start_ms)
    )


def _told(history: tuple[HistoryEntry, ...]) -> tuple[HistoryEntry, ...]:
    """Return the lines, of replica sets that closed one after the other only the last."""
    close = SegmentEvent.CLOSE.value
    return tuple(
        msgspec.structs.replace(line, note=_cut(line.note))
        for at, line in enumerate(history)
        if line.event != close or at + 1 == len(history) or history[at + 1].event != close
    )


def _cut(note: str) -> str:
    return note if len(note) <= _NOTE_CHARACTERS_MAX else f"{note[: _NOTE_CHARACTERS_MAX - 1]}…"
