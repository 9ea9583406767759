"""A cube's control and segment records, cached and kept fresh by two watches.

Open records are there from the start. Settled ones are read page by page, when something first asks for
their time, and are kept fresh from then on. So a service starts with as many requests after three years of
history as after a day of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import msgspec

from rtolap.base.closeable import Closeable
from rtolap.base.errors import NotFound, Unavailable
from rtolap.metadata import paths
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import ChangeLog, CubeControl, SegmentRecord
from rtolap.metadata.segment_format.pages import HistoryFrontier, overlapping, page_of
from rtolap.metadata.updates import read
from rtolap.model.segment import SegmentRange, parse_segment_name

ROUNDS_MAX = 50  # of one load, while records change: each is a few requests

RANGES_MAX = 16  # of time whose records are kept as one dict

Records = dict[str, SegmentRecord]


class KnownSegments:
    """The records that a view has at one moment. Never changed, but for what is derived from it.

    Attributes:
        open: records with a node of their own, by name, ordered by start.
        loaded: settled records of the pages that were asked for, by page.
        pages: all pages that there are.
        frontier: how far history has come; empty where the view does not follow it.
    """

    def __init__(
        self,
        open: Records,
        loaded: Mapping[SegmentRange, Records],
        pages: frozenset[SegmentRange],
        frontier: HistoryFrontier,
    ) -> None:
        self.open, self.loaded, self.pages, self.frontier = open, loaded, pages, frontier
        self._missing = pages - loaded.keys()
        self._within: dict[tuple[SegmentRange, ...], Records] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KnownSegments) and (
            (self.open, self.loaded, self.pages, self.frontier)
            == (other.open, other.loaded, other.pages, other.frontier)
        )

    __hash__ = None  # type: ignore[assignment]

    def missing(self, start_ms: int | None, end_ms: int | None) -> tuple[SegmentRange, ...]:
        """Return the pages of that time that were not read yet."""
        return overlapping(self._missing, start_ms, end_ms) if self._missing else ()

    def within(self, start_ms: int | None, end_ms: int | None) -> Records:
        """Return the open records, and those of the pages of that time, by name and ordered by start.

        It is the same object for the same pages.
        """
        pages = overlapping(self.loaded, start_ms, end_ms)
        found = self._within.get(pages)
        if found is None:
            records: Records = {}
            for page in pages:
                records.update(self.loaded[page])
            found = dict(sorted({**records, **self.open}.items()))
            if len(self._within) >= RANGES_MAX:
                self._within = {}
            self._within[pages] = found
        return found


_NOTHING = KnownSegments({}, {}, frozenset(), HistoryFrontier())


class SegmentView(Closeable):
    """A view of the segments. It is thread-safe. Making one raises NotFound if the cube does not exist.

    The change log is read before the records, so a change that commits meanwhile is seen the next time; where
    pages were read, it is read again behind them: a record that moves between its own node and a page is in
    one of them. What `records()` returns is a dict that is never changed afterwards: readers keep it as a
    snapshot. `snapshot()` gives control and records of the same moment. If the cube is dropped, control is a
    disabled one and no records are left. So it is for a view of one creation of the cube when another one has
    taken its place.
    """

    def __init__(
        self,
        metadata: ClusterMetadata,
        cube: str,
        cube_id: str | None = None,
        *,
        by_page: bool = False,
        with_frontier: bool = False,
    ) -> None:
        """Follow the segments of one creation, `cube_id`; None follows the present one.

        Args:
            by_page: read pages when they are asked for, and of their records only what readers of history
                need; False: have all, as they are.
            with_frontier: follow the frontier of history.
        """
        self.cube = cube
        self._cube_id = cube_id
        self._metadata = metadata
        self._by_page = by_page
        self._with_frontier = with_frontier
        self._loading = threading.Lock()  # one load at a time, so that an older one never overwrites
        self._changed = threading.Condition()
        self._known = _NOTHING
        self._control = CubeControl()
        self._seen: ChangeLog | None = None  # the log as of the last load
        self._closed = False
        metadata.control(cube)
        self._load()
        self._watches = [
            metadata.store.watch(path, self._load)
            for path in (paths.cube_changes(cube), paths.cube_control(cube))
        ]

    def close(self) -> None:
        self._closed = True
        for watch in self._watches:
            watch.stop()

    def control(self) -> CubeControl:
        with self._changed:
            return self._control

    def cube_id(self) -> str:
        """Return the id of the creation that the view is of; "" if it is gone."""
        with self._changed:
            return "" if self._seen is None else self._seen.cube_id

    def known(self) -> tuple[CubeControl, KnownSegments]:
        """Return what is there now; never waits."""
        with self._changed:
            return self._control, self._known

    def records(self, start_ms: int | None = None, end_ms: int | None = None) -> Records:
        """Return open records, and settled ones of the pages of that time: see `identified`."""
        return self.identified(start_ms, end_ms)[2]

    def snapshot(self, start_ms: int | None = None, end_ms: int | None = None) -> tuple[CubeControl, Records]:
        """Return control and records of one moment: see `identified`."""
        return self.identified(start_ms, end_ms)[1:]

    def identified(
        self, start_ms: int | None = None, end_ms: int | None = None
    ) -> tuple[str, CubeControl, Records]:
        """Return the cube's id, new for each creation, and control and records of that same cube.

        The id is "" if the cube is gone. The records are ordered by start: all that touch the range, and
        maybe more; None: without a bound. Raises Unavailable where a page has to be read and cannot be.
        """
        while True:
            with self._changed:
                seen, control, known = self._seen, self._control, self._known
            if not known.missing(start_ms, end_ms):
                return "" if seen is None else seen.cube_id, control, known.within(start_ms, end_ms)
            with self._loading:
                self._load_once((start_ms, end_ms))

    def segment(self, window: SegmentRange) -> SegmentRecord | None:
        """Return a record, open or settled.

        Raises Unavailable where its page has to be read and cannot be.
        """
        page = page_of(window)
        while True:
            with self._changed:
                known = self._known
            if window.name in known.open:
                return known.open[window.name]
            if page in known.loaded:
                return known.loaded[page].get(window.name)
            if page not in known.pages:
                return None
            with self._loading:
                self._load_once((page.start_ms, page.end_ms))

    def refresh(self) -> None:
        """Refresh the view, so that it is not older than the call. Raises Unavailable."""
        self._metadata.store.sync()
        self.reload()

    def reload(self) -> None:
        """Refresh the view, so that it is not older than the last `sync` of its store. Raises Unavailable."""
        self._load()

    def wait_for(self, predicate: Callable[[CubeControl, Records], bool], timeout_s: float) -> bool:
        """Wait until what is there fulfils `predicate`; False if it does not within `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(
                lambda: predicate(self._control, self._known.within(None, None)), timeout_s
            )

    def _load(self) -> None:
        if self._closed:
            return
        with self._loading:
            self._load_once()

    def _load_once(self, wanted: tuple[int | None, int | None] | None = None) -> None:
        """Read what has changed, and the pages of the range that is wanted."""
        seen, known = self._seen, self._known
        for _ in range(ROUNDS_MAX):
            changes = self._read_log()
            if changes is None:
                self._swap(CubeControl(), _NOTHING, None)
                return
            known, read_pages = self._loaded(known, _stale(seen, changes), wanted)
            seen = changes
            try:
                control = self._metadata.control(self.cube)
            except NotFound:
                self._swap(CubeControl(), _NOTHING, None)
                return
            if not read_pages or self._read_log() == changes:
                self._swap(control, known, changes)
                return
        raise Unavailable(
            f"the segments of cube {self.cube} change faster than they can be read",
            found=f"{ROUNDS_MAX} rounds",
            action="try again",
        )

    def _read_log(self) -> ChangeLog | None:
        log = read(self._metadata.store, paths.cube_changes(self.cube), ChangeLog)
        return None if log is None or self._cube_id not in (None, log.cube_id) else log

    def _loaded(
        self,
        before: KnownSegments,
        stale: set[str] | None,
        wanted: tuple[int | None, int | None] | None,
    ) -> tuple[KnownSegments, bool]:
        """Return the records, and whether pages were read: what moved out of one meanwhile may be missing.

        Own nodes come before pages: what moves into a page meanwhile is found there.
        """
        nodes = self._metadata.nodes
        if stale is None:
            names, opened = nodes.open_names(self.cube), {}
        else:
            names, opened = tuple(sorted(stale)), before.open
        records = {name: nodes.open_segment(self.cube, name) for name in names}
        settled = {page_of(parse_segment_name(name)) for name, record in records.items() if record is None}
        if records:
            fresh = {name: record for name, record in records.items() if record is not None}
            left = {name: record for name, record in opened.items() if name not in records}
            opened = dict(sorted({**left, **fresh}.items()))
        pages = before.pages | settled if stale is not None else frozenset(nodes.page_ranges(self.cube))
        loaded = {} if stale is None else {p: r for p, r in before.loaded.items() if p not in settled}
        again = set() if stale is None else settled & before.loaded.keys()
        if not self._by_page:
            again |= pages - loaded.keys()
        elif wanted is not None:
            again |= {*overlapping(pages - loaded.keys(), *wanted)}
        for page in sorted(again):
            loaded[page] = self._page(page)
        frontier = before.frontier
        if self._with_frontier and (settled or stale is None):
            frontier = nodes.frontier(self.cube)
        if not again and opened is before.open and pages == before.pages and frontier is before.frontier:
            return before, False
        return KnownSegments(opened, loaded, frozenset(pages), frontier), bool(again)

    def _page(self, page: SegmentRange) -> Records:
        records = self._metadata.nodes.page(self.cube, page)[0]
        return {name: _lean(record) for name, record in records.items()} if self._by_page else records

    def _swap(self, control: CubeControl, known: KnownSegments, seen: ChangeLog | None) -> None:
        with self._changed:
            changed = control != self._control or known != self._known
            self._control, self._known, self._seen = control, known, seen
            if changed:
                self._changed.notify_all()


def _stale(seen: ChangeLog | None, changes: ChangeLog) -> set[str] | None:
    """Return names to read again; None for all, where the log does not reach back far enough."""
    if seen is None or changes.cube_id != seen.cube_id or changes.sequence < seen.sequence:
        return None
    fresh = [name for sequence, name in changes.recent if sequence > seen.sequence]
    return set(fresh) if len(fresh) == changes.sequence - seen.sequence else None


def _lean(record: SegmentRecord) -> SegmentRecord:
    return msgspec.structs.replace(record, state_history=(), build=None, completeness=None)
