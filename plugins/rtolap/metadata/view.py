"""A cube's control and segment records, cached and kept fresh by two watches."""

from __future__ import annotations

import threading
from collections.abc import Callable

from rtolap.base.closeable import Closeable
from rtolap.base.errors import NotFound
from rtolap.metadata import paths
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import ChangeLog, CubeControl, SegmentRecord
from rtolap.metadata.updates import read


class SegmentView(Closeable):
    """A view of the segments. It is thread-safe. Making one raises NotFound if the cube does not exist.

    The change log is read before the records, so a change that commits meanwhile is seen the next time.
    `records()` is a dict that is never changed afterwards: readers keep it as a snapshot. `snapshot()` gives
    control and records of the same moment. If the cube is dropped, control is a disabled one and no
    records are left. So it is for a view of one creation of the cube when another one has taken its place.
    """

    def __init__(self, metadata: ClusterMetadata, cube: str, cube_id: str | None = None) -> None:
        """Follow the segments of one creation, `cube_id`; None follows the present one."""
        self.cube = cube
        self._cube_id = cube_id
        self._metadata = metadata
        self._loading = threading.Lock()  # one load at a time, so that an older one never overwrites
        self._changed = threading.Condition()
        self._records: dict[str, SegmentRecord] = {}
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

    def records(self) -> dict[str, SegmentRecord]:
        """Return them by name, ordered by start."""
        with self._changed:
            return self._records

    def control(self) -> CubeControl:
        with self._changed:
            return self._control

    def snapshot(self) -> tuple[CubeControl, dict[str, SegmentRecord]]:
        with self._changed:
            return self._control, self._records

    def identified(self) -> tuple[str, CubeControl, dict[str, SegmentRecord]]:
        """Return the cube's id, new for each creation, and the snapshot of that same cube; "" if it is
        gone.
        """
        with self._changed:
            return "" if self._seen is None else self._seen.cube_id, self._control, self._records

    def refresh(self) -> None:
        """Refresh the view, so that it is not older than the call. Raises Unavailable."""
        self._metadata.store.sync()
        self._load()

    def wait_for(
        self, predicate: Callable[[CubeControl, dict[str, SegmentRecord]], bool], timeout_s: float
    ) -> bool:
        """Wait until the view fulfils `predicate`; False if it does not within `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: predicate(self._control, self._records), timeout_s)

    def _load(self) -> None:
        if self._closed:
            return
        with self._loading:
            self._load_once()

    def _load_once(self) -> None:
        store = self._metadata.store
        changes = read(store, paths.cube_changes(self.cube), ChangeLog)
        if changes is None or self._cube_id not in (None, changes.cube_id):
            self._swap(CubeControl(), {}, None)
            return
        stale = self._stale(changes)
        if stale is None:
            records = self._metadata.segments(self.cube)
        elif stale:
            records = dict(self._records)
            for name in stale:
                record = self._metadata.segment(self.cube, name)
                if record is None:
                    records.pop(name, None)
                else:
                    records[name] = record
            records = dict(sorted(records.items()))
        else:
            records = self._records
        try:
            control = self._metadata.control(self.cube)
        except NotFound:
            self._swap(CubeControl(), {}, None)
            return
        self._swap(control, records, changes)

    def _stale(self, changes: ChangeLog) -> set[str] | None:
        """Return names to read again; None for all, where the log does not reach back far enough."""
        seen = self._seen
        if seen is None or changes.cube_id != seen.cube_id or changes.sequence < seen.sequence:
            return None
        fresh = [name for sequence, name in changes.recent if sequence > seen.sequence]
        return set(fresh) if len(fresh) == changes.sequence - seen.sequence else None

    def _swap(self, control: CubeControl, records: dict[str, SegmentRecord], seen: ChangeLog | None) -> None:
        with self._changed:
            changed = control != self._control or records != self._records
            self._control, self._records, self._seen = control, records, seen
            if changed:
                self._changed.notify_all()
