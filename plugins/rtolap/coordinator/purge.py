"""Removal of purged segments, staged files of promoted versions and superseded history."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from rtolap.base.errors import Corrupted, NotFound, NotYet
from rtolap.coordinator.builds.batches import PLANS_KEPT_MS
from rtolap.coordinator.merging.leftovers import TRIMMED_NAME, MergeLeftovers, merge_leftovers
from rtolap.coordinator.merging.merges import publications_in_the_way
from rtolap.coordinator.views import Views
from rtolap.cubes.format.folders import (
    ROOTS,
    creation_folder,
    creations,
    folders_without_id,
    merge_folders,
    segment_folders,
    version_folders,
)
from rtolap.cubes.format.manifest import PLAN_NAME, BatchPlan, decode
from rtolap.metadata import segments
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.publications import Publications, holders
from rtolap.metadata.records import CubeControl, SegmentRecord, standing
from rtolap.metadata.segment_format.vectors import version_of_folder
from rtolap.model.quantities import instant_text
from rtolap.model.segment import SegmentEvent, SegmentState, parse_segment_name
from rtolap.object_store.store import ObjectStore
from rtolap.protocols.coordinator.messages import CleanupResult, PurgeResult

log = logging.getLogger(__name__)

GRACE_MS = 600_000  # queries that began before a promotion or a purge may read the old folder so long


class Left(NamedTuple):
    """A creation of a cube, and its folders in the object store."""

    cube_id: str
    folders: tuple[str, ...]


class Purge:
    def __init__(
        self, metadata: ClusterMetadata, views: Views, store: ObjectStore, *, grace_ms: int = GRACE_MS
    ) -> None:
        self._metadata = metadata
        self._views = views
        self._store = store
        self._publications = Publications(metadata.store)
        self._grace_ms = grace_ms

    def purge(self, cube: str, before_ms: int, cube_id: str | None = None) -> PurgeResult:
        """Drop for ever all segments that end at or below `before_ms`. `cube_id`: of the creation that is
        meant; None: of any.

        1. raise the horizon     crash: receivers and queries leave those segments out already
        2. mark each record      crash: the next look at the cube goes on (`finish`)
        """

        def raised(control: CubeControl) -> CubeControl:
            horizon_ms = before_ms if control.horizon_ms is None else max(control.horizon_ms, before_ms)
            return msgspec.structs.replace(control, horizon_ms=horizon_ms)

        horizon_ms = self._metadata.update_control(cube, raised, cube_id=cube_id).horizon_ms
        return PurgeResult(horizon_ms=horizon_ms, segments=tuple(self._mark(cube)))

    def purge_revisions(self, cube: str, before_ms: int) -> PurgeResult:
        """Do as `purge` of the cube and of the revisions that follow it. Repeat it after a crash."""
        done = [self.purge(each.name, before_ms) for each in self._metadata.revisions(cube)]
        return PurgeResult(
            horizon_ms=done[-1].horizon_ms,
            segments=tuple(sorted({n for each in done for n in each.segments})),
        )

    def finish(self, cube: str) -> None:
        """Mark what lies below the horizon, where the one that raised it was killed before."""
        if self._metadata.control(cube).horizon_ms is not None:
            self._mark(cube)

    def retention(self, cube: str) -> PurgeResult:
        """Purge what the cube's policy says is too old, by the low watermark and never by the wall clock.

        A revision that has ended reads no more: its watermark is that of the newest one.
        """
        cube_id = self._metadata.cube_id(cube)
        after_ms = self._metadata.cube(cube).retention.after_ms
        reading = self._metadata.revisions(cube)[-1].name if self._metadata.control(cube).ended else cube
        watermark_ms = self._metadata.published_watermark_ms(reading)
        if after_ms is None or watermark_ms is None:
            return PurgeResult(horizon_ms=self._metadata.control(cube).horizon_ms)
        return self.purge(cube, watermark_ms - after_ms, cube_id)

    def cleanup(self, cube: str) -> CleanupResult:
        """Delete folders that no reader may need any more, then records of purged segments without folders.

        The folders are listed before the records are read: whatever is uploaded or begun has its record
        first, so a folder that is listed and has no use in the records read afterwards has none at all.
        Holds of publications are read after the records, see `rtolap.metadata.publications`.
        """
        before = self._metadata.cube_id(cube)
        staged = list(version_folders(self._store, "staged", cube, before))
        history = list(version_folders(self._store, "history", cube, before))
        merges = list(merge_folders(self._store, cube, before))
        earlier = {root: creations(self._store, root, cube) for root in ROOTS}
        self._mark(cube)
        cube_id, control, records = self._views.fresh_creation(cube)
        if cube_id != before:
            raise NotYet(f"cube {cube} was dropped and recreated meanwhile", action="clean up again")
        useless = [path for path, name, version in staged if self._staged_useless(records.get(name), version)]
        held: Counter[str] = Counter()
        holds = {name: self._publications.holds(name) for name in self._publications.of_cube(cube)}
        for path, name, version in history:
            record = records.get(name)
            if not self._history_useless(record, path, version):
                continue
            found = holders(holds, cube_id, parse_segment_name(name), version)
            if found and _was_promoted(record, path, version):
                held.update(found if version_of_folder(path) == path else ())  # its vectors wait with it
            else:
                useless.append(path)
        useless += self._useless_batches(cube, before, records)
        # A creation that is listed and is not the one that stands afterwards was dropped: ids never return.
        useless += [
            creation_folder(root, cube, each) for root in ROOTS for each in earlier[root] if each != cube_id
        ]
        left = self._merge_leftovers(cube, merges, control, records)
        useless += left.useless
        self._store.claim()
        for path in useless:
            self._store.delete_tree(path)
        for merge, cuboids in left.cuboids.items():
            for path in cuboids:
                self._store.delete_tree(path)
            self._store.write(f"{merge}/{TRIMMED_NAME}", b"")
            useless += cuboids
        remaining = {name for path, name, _ in (*staged, *history) if path not in set(useless)}
        gone = [
            record.name
            for record in records.values()
            if record.state is SegmentState.PURGED and record.name not in remaining and self._aged(record)
        ]
        for name in gone:
            for path in (folder for root in ROOTS for folder in segment_folders(root, cube, cube_id, name)):
                self._store.delete_tree(path)
            self._metadata.remove_segment(cube, name, cube_id=cube_id)
        waiting = tuple(self._held_by(name, count) for name, count in sorted(held.items()))
        return CleanupResult(folders=tuple(useless), records=tuple(gone), waiting=waiting)

    def folders_of(self, cube: str) -> Left:
        """Return what the cube has in the object store while it stands. No later creation writes there."""
        cube_id = self._metadata.cube_id(cube)
        paths = [creation_folder(root, cube, cube_id) for root in ROOTS if cube_id]
        paths += [path for root in ROOTS for path in folders_without_id(self._store, root, cube)]
        return Left(cube_id, tuple(paths))

    def delete_all(self, left: Left) -> None:
        """Delete everything that a dropped cube left in the object store."""
        self._store.claim()
        for path in left.folders:
            self._store.delete_tree(path)

    def _mark(self, cube: str) -> list[str]:
        """Return names of the segments below the horizon that were not marked before."""
        cube_id, control, records = self._views.fresh_creation(cube)
        now_ms = self._metadata.clock.now_ms()

        def purged(record: SegmentRecord) -> SegmentRecord:
            return segments.purge(record, now_ms=now_ms, by="below the horizon")

        below = [
            record
            for record in records.values()
            if control.horizon_ms is not None
            and record.end_ms <= control.horizon_ms
            and record.state is not SegmentState.PURGED
        ]
        for record in below:
            self._metadata.update_segment(cube, record.range, purged, cube_id=cube_id, with_vectors=False)
        return [record.name for record in below]

    def _held_by(self, publication: str, folders: int) -> str:
        status = self._publications.status(publication)
        at = "never" if status.looked_ms is None else instant_text(status.looked_ms)
        return (
            f"{folders} folders wait for publication {publication}: snapshots of its table may name their "
            f"files, and its publisher lets them expire. It has looked last: {at}. "
            f"`rtolap publish release {publication}` gives the snapshots up"
        )

    def _merge_leftovers(
        self, cube: str, merges: Sequence[str], control: CubeControl, records: Mapping[str, SegmentRecord]
    ) -> MergeLeftovers:
        if not merges:
            return MergeLeftovers((), {})
        return merge_leftovers(
            self._store,
            merges,
            records.values(),
            standing(control, records),
            is_over=self._aged,
            now_ms=self._metadata.clock.now_ms(),
            may_trim=not publications_in_the_way(self._metadata, self._metadata.cube(cube)),
        )

    def _useless_batches(self, cube: str, cube_id: str, records: Mapping[str, SegmentRecord]) -> list[str]:
        """Return the folders of batches that no segment waits for, and that were planned long ago.

        A plan is written before anything else: a folder without one is what a deletion has left.
        """
        pending = {record.pending_batch for record in records.values()}
        parent = creation_folder("batches", cube, cube_id)
        limit_ms = self._metadata.clock.now_ms() - PLANS_KEPT_MS
        useless = []
        for batch in self._store.folders(parent):
            path = f"{parent}/{batch}/{PLAN_NAME}"
            if batch in pending:
                continue
            try:
                planned_ms = decode(self._store.read(path), BatchPlan, path).planned_ms
            except NotFound:
                planned_ms = limit_ms
            except Corrupted as error:  # who damaged it is to be found, and nothing else waits for that
                log.warning("a batch is left as it is: %s", error)
                continue
            if planned_ms <= limit_ms:
                useless.append(f"{parent}/{batch}")
        return useless

    def _staged_useless(self, record: SegmentRecord | None, version: int) -> bool:
        """Return parts of a version that is promoted, or of a segment that is purged or was never
        recorded.
        """
        return record is None or record.state is SegmentState.PURGED or version <= record.version

    def _history_useless(self, record: SegmentRecord | None, path: str, version: int) -> bool:
        if record is None:
            return True
        if record.state is SegmentState.PURGED:
            return self._aged(record)
        location = version_of_folder(path)
        if location == record.location:
            return False
        if record.build is not None and record.build.location == location and version > record.version:
            return False  # the newest attempt may still be writing
        superseded = version < record.version
        return self._aged(record) if superseded else True

    def _aged(self, record: SegmentRecord) -> bool:
        """Return True if no query reads any more what was before the last promotion, adoption, merge or
        purge."""
        events = (SegmentEvent.PROMOTE, SegmentEvent.PURGE, SegmentEvent.MERGE, SegmentEvent.ADOPT)
        ended = {event.value for event in events}
        at_ms = max((line.at_ms for line in record.state_history if line.event in ended), default=0)
        return self._metadata.clock.now_ms() - at_ms >= self._grace_ms


def _was_promoted(record: SegmentRecord | None, path: str, version: int) -> bool:
    """Return False for the folder of an attempt that surely lost: no snapshot names it."""
    if record is None or version < record.version:
        return True
    return version == record.version and version_of_folder(path) == record.location
