"""Segment records in their nodes: open ones each in a node of its own, settled ones in pages (see `pages`).

A change moves a record between the two where its state asks for it. The nodes that it touches, the frontier
and the cube's change log are one commit, each with its version: a reader of any moment finds the record in
exactly one place, and two changes of one record are never both taken.

Without a store for vectors, a record keeps its vectors and a node of its own, as all did before there were
pages. Such records are read as the others are; `settle` moves them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from rtolap.base.errors import Corrupted, DefinitionError, Refused
from rtolap.metadata import codec, paths
from rtolap.metadata.change_log import change_log, logged
from rtolap.metadata.records import ChangeLog, CubeControl, SegmentRecord
from rtolap.metadata.segment_format.pages import (
    HistoryFrontier,
    decode_page,
    encode_page,
    is_settled,
    opened,
    page_of,
    paged,
)
from rtolap.metadata.segment_format.pieces import Piece, SplitSegment, join, split
from rtolap.metadata.segment_format.vectors import VectorFiles
from rtolap.metadata.store import Check, Create, Delete, MetadataStore, Operation, Put, Versioned
from rtolap.metadata.updates import put_or_create, read, retried, standing
from rtolap.model.segment import SegmentRange, SegmentState, parse_segment_name

PIECES_MAX = 200  # that are remembered: up to `pieces.HEAD_BYTES_MAX` bytes and what one change adds

Page = dict[str, SegmentRecord]


class _Opened(NamedTuple):
    """A record with a node of its own, and the pieces that it has beside it."""

    record: SegmentRecord
    node: Versioned
    pieces: Mapping[str, Piece]


class _Place(NamedTuple):
    """The place of a record.

    Attributes:
        record: None where there is none.
        own: what is in a node of its own.
        page: the page of its time, where it was looked into, and its node if there is one.
        log: of the cube, where it was read before the page: nothing has changed since then if that commits.
    """

    record: SegmentRecord | None
    own: _Opened | None = None
    page: tuple[Page, Versioned | None] | None = None
    log: tuple[ChangeLog, Versioned] | None = None


class SegmentNodes:
    """The records of all cubes. It is thread-safe. `vectors`: None keeps vectors in the records."""

    def __init__(self, store: MetadataStore, vectors: VectorFiles | None) -> None:
        self._store = store
        self._vectors = vectors
        self._lock = threading.Lock()
        self._pieces: dict[tuple[str, str], Piece] = {}

    def segment(self, cube: str, name: str) -> SegmentRecord | None:
        """Return the record as it is stored: see `whole`."""
        for _ in range(2):  # one that moves meanwhile is in the other place
            record = self.open_segment(cube, name)
            if record is None:
                record = self.page(cube, page_of(parse_segment_name(name)))[0].get(name)
            if record is not None:
                return record
        return None

    def open_segment(self, cube: str, name: str) -> SegmentRecord | None:
        found = self._opened(cube, name)
        return None if found is None else found.record

    def _opened(self, cube: str, name: str) -> _Opened | None:
        """Return what has a node of its own. Raises Corrupted where a piece of it is gone."""
        path = paths.segment(cube, name)
        version: int | None = None
        while True:
            node = self._store.get(path)
            if node is None:
                return None
            head = codec.decode(node.data, SplitSegment, path)
            if head.record is None:
                return _Opened(codec.decode(node.data, SegmentRecord, path), node, {})
            pieces = {each: self._piece(cube, each) for each in head.pieces}
            known = {each: piece for each, piece in pieces.items() if piece is not None}
            if len(known) == len(pieces):
                return _Opened(join(head.record, known), node, known)
            if node.version == version:  # else it was dropped with a change of the head since
                raise Corrupted(
                    f"the record {path} lacks a piece",
                    expected=f"nodes {', '.join(head.pieces)} below {paths.closing(cube)}",
                    found=", ".join(known) or "none",
                    action="restore the nodes from a backup of ZooKeeper",
                )
            version = node.version

    def _piece(self, cube: str, name: str) -> Piece | None:
        """Return a piece. It never changes: what was read once is not read again for a while."""
        with self._lock:
            known = self._pieces.get((cube, name))
        if known is None:
            known = read(self._store, paths.closing_piece(cube, name), Piece)
            if known is not None:
                self._keep(cube, {name: known})
        return known

    def _keep(self, cube: str, pieces: Mapping[str, Piece]) -> None:
        with self._lock:
            for name, piece in pieces.items():
                self._pieces[(cube, name)] = piece
            while len(self._pieces) > PIECES_MAX:
                del self._pieces[next(iter(self._pieces))]

    def open_names(self, cube: str) -> tuple[str, ...]:
        return self._store.children(paths.segments(cube))

    def page_ranges(self, cube: str) -> tuple[SegmentRange, ...]:
        return tuple(parse_segment_name(name) for name in self._store.children(paths.history(cube)))

    def page(self, cube: str, page: SegmentRange) -> tuple[Page, Versioned | None]:
        """Return the records of a page, none where there is no such page."""
        path = paths.history_page(cube, page.name)
        node = self._store.get(path)
        return ({} if node is None else decode_page(node.data, path)), node

    def frontier(self, cube: str) -> HistoryFrontier:
        return read(self._store, paths.frontier(cube), HistoryFrontier) or HistoryFrontier()

    def segments(self, cube: str) -> dict[str, SegmentRecord]:
        """Return all records as they are stored, ordered by start."""
        while True:
            log = read(self._store, paths.cube_changes(cube), ChangeLog)
            records: dict[str, SegmentRecord] = {}
            for name in self.open_names(cube):
                record = self.open_segment(cube, name)
                if record is not None:
                    records[name] = record
            pages = self.page_ranges(cube)
            for page in pages:
                records = {**self.page(cube, page)[0], **records}
            if not pages or read(self._store, paths.cube_changes(cube), ChangeLog) == log:
                return dict(sorted(records.items()))

    def whole(self, record: SegmentRecord) -> SegmentRecord:
        """Return the record with the vectors of its READY version. Raises Corrupted, Unavailable."""
        if record.vectors is None or record.state is SegmentState.PURGED:
            return record
        if self._vectors is None:
            raise DefinitionError(
                f"the vectors of {record.cube}/{record.name} are in the object store",
                expected="a service that has an object store",
                found="none",
            )
        return self._vectors.whole(record)

    @retried
    def update(
        self,
        cube: str,
        window: SegmentRange,
        change: Callable[[SegmentRecord], SegmentRecord],
        *,
        cube_id: str | None = None,
        require: Callable[[], Sequence[Operation]] = tuple,
        with_vectors: bool = True,
    ) -> SegmentRecord:
        """Commit `change(record)` together with the cube's ChangeLog, and only where `require` holds, which
        is called again each round. Return the record with its vectors.

        A segment without a record is given to `change` as a fresh ACTIVE one, and is only written if it
        comes back changed; one that ends at or below the purge horizon is Refused. Errors of `change`
        (Refused, IllegalTransition) pass through; nothing is written. `cube_id`: of the creation that the
        change is of; None: of any. NotFound where it is gone, whoever has its name. `with_vectors`: False for
        a change that needs none of the READY version.

        1. write the vectors of a version that has become READY   crash: a file that no record names, which
                                                                  goes with its version; the repetition
                                                                  writes the same
        2. commit record, page, frontier and log as one           crash before: repeat; after: the repetition
                                                                  finds its change and has nothing to write
        """
        fresh = SegmentRecord(cube=cube, start_ms=window.start_ms, end_ms=window.end_ms)
        place = self._place(cube, window)
        stored = fresh if place.record is None else place.record
        before = self.whole(stored) if with_vectors else stored
        after = change(before)
        if after == before:
            return after
        if with_vectors and after.vectors is not None and _vectors_differ(before, after):
            after = msgspec.structs.replace(after, vectors=None)
        operations, after = self._writes(cube, window, place, after)
        if place.record is None:
            operations.append(self._not_purged(cube, window))
        log = place.log or change_log(self._store, cube, cube_id)
        self._store.commit([*operations, *require(), logged(cube, window.name, log, cube_id)])
        return after

    @retried
    def settle(self, cube: str, window: SegmentRange) -> bool:
        """Move a settled record into its page. Return False where it is there, is open or cannot be moved.

        The steps are those of `update`; a repetition after a crash finds it moved.
        """
        own = self._opened(cube, window.name)
        if own is None or not self._belongs_in_page(own.record):
            return False
        operations, _ = self._writes(cube, window, _Place(own.record, own), own.record)
        log = change_log(self._store, cube, None)
        self._store.commit([*operations, logged(cube, window.name, log, None)])
        return True

    @retried
    def remove(self, cube: str, name: str, *, cube_id: str | None, horizon_ms: int | None) -> None:
        """Forget a record that ends at or below the horizon."""
        window = parse_segment_name(name)
        place = self._place(cube, window)
        if place.record is None:
            return
        if horizon_ms is None or place.record.end_ms > horizon_ms:
            raise Refused(f"the record of {cube}/{name} is still needed", expected=f"an end <= {horizon_ms}")
        if place.own is not None:
            operations = _dropped(cube, name, place.own)
        else:
            operations = [self._without(cube, window, place)]
        log = place.log or change_log(self._store, cube, cube_id)
        self._store.commit([*operations, logged(cube, name, log, cube_id)])

    # -- places -----------------------------------------------------------------------------------------

    def _place(self, cube: str, window: SegmentRange) -> _Place:
        """Find the record. Where it has no node of its own, the log is read first and becomes a requirement
        of the commit: a record that moves between two looks would be found in neither place."""
        own = self._opened(cube, window.name)
        log = None
        if own is None:
            log = change_log(self._store, cube, None)
            own = self._opened(cube, window.name)
        if own is not None:
            return _Place(own.record, own, log=log)
        page = self.page(cube, page_of(window))
        return _Place(page[0].get(window.name), page=page, log=log)

    def _belongs_in_page(self, record: SegmentRecord) -> bool:
        has_vectors = record.version > 0 and record.state is not SegmentState.PURGED
        return (
            self._vectors is not None
            and is_settled(record)
            and (record.location is not None or not has_vectors)
        )

    def _writes(
        self, cube: str, window: SegmentRange, place: _Place, after: SegmentRecord
    ) -> tuple[list[Operation], SegmentRecord]:
        """Return what puts `after` where it belongs and nowhere else, and the record as it is then."""
        if not self._belongs_in_page(after):
            return self._opens(cube, window, place, after), after
        operations = [] if place.own is None else _dropped(cube, window.name, place.own)
        if after.version and after.vectors is None and after.state is SegmentState.READY:
            assert self._vectors is not None, "it belongs in a page"
            after = msgspec.structs.replace(after, vectors=self._vectors.write(after))
            operations += self._advanced(cube, self.whole(after))
        records, node = place.page or self.page(cube, page_of(window))
        data = encode_page({**records, window.name: paged(after)})
        path = paths.history_page(cube, page_of(window).name)
        return [*operations, put_or_create(path, data, node)], after

    def _opens(self, cube: str, window: SegmentRange, place: _Place, after: SegmentRecord) -> list[Operation]:
        own = place.own
        divided = split(opened(after), {} if own is None else own.pieces)
        node = None if own is None else own.node
        operations = [
            put_or_create(paths.segment(cube, window.name), divided.head, node),
            *(Create(paths.closing_piece(cube, name), data) for name, data in divided.fresh.items()),
            *(Delete(paths.closing_piece(cube, name)) for name in divided.gone),
        ]
        if place.record is not None and own is None:
            operations.append(self._without(cube, window, place))
        return operations

    def _without(self, cube: str, window: SegmentRange, place: _Place) -> Operation:
        assert place.page is not None, "the record was looked for there"
        found, node = place.page
        assert node is not None, "the record was found there"
        records = {name: record for name, record in found.items() if name != window.name}
        path = paths.history_page(cube, page_of(window).name)
        return Put(path, encode_page(records), node.version) if records else Delete(path, node.version)

    def _advanced(self, cube: str, record: SegmentRecord) -> list[Operation]:
        path = paths.frontier(cube)
        node = self._store.get(path)
        before = HistoryFrontier() if node is None else codec.decode(node.data, HistoryFrontier, path)
        after = before.beyond(record)
        return [] if after is before else [put_or_create(path, codec.encode(after), node)]

    def _not_purged(self, cube: str, window: SegmentRange) -> Operation:
        """Return the requirement under which a record may be made: the horizon read here still stands."""
        path = paths.cube_control(cube)
        control, node = standing(self._store, path, CubeControl, f"cube {cube}")
        horizon_ms = control.horizon_ms
        if horizon_ms is not None and window.end_ms <= horizon_ms:
            raise Refused(
                f"segment {cube}/{window.name} is purged for ever",
                expected=f"an end beyond the horizon {horizon_ms}",
                action="drop and count its events",
            )
        return Check(path, node.version)


def _vectors_differ(before: SegmentRecord, after: SegmentRecord) -> bool:
    """Return True if the file that the record names does not hold what the record says now."""
    settled = after.state is SegmentState.READY
    return (before.covered, before.covered_epochs, before.begins) != (
        after.covered,
        after.covered_epochs,
        after.begins,
    ) or (settled and before.losses != after.losses)


def _dropped(cube: str, name: str, own: _Opened) -> list[Operation]:
    pieces = (Delete(paths.closing_piece(cube, piece)) for piece in own.pieces)
    return [Delete(paths.segment(cube, name), own.node.version), *pieces]
