"""Typed operations on the cluster's state, which all services use instead of znodes.

Changes are functions `record → record`, committed by version check and repeated on conflict, so they have
to be idempotent: pure functions of `metadata.segments` are. A change of a segment and the entry in its
cube's ChangeLog are one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from rtolap.base.clock import Clock
from rtolap.base.errors import Refused
from rtolap.metadata import paths, updates
from rtolap.metadata.change_log import change_log
from rtolap.metadata.definitions import Definitions
from rtolap.metadata.members.membership import Members
from rtolap.metadata.records import (
    CubeControl,
    ReplayFrom,
    SegmentRecord,
    WatermarkRecord,
)
from rtolap.metadata.segment_format.vectors import VectorFiles, VersionFiles
from rtolap.metadata.segment_nodes import SegmentNodes
from rtolap.metadata.store import Check, MetadataStore, Operation
from rtolap.metadata.updates import read, read_each, standing, update
from rtolap.model.offsets import Offsets


class ClusterMetadata(Definitions, Members):
    """Everything typed, on one store: definitions, members, and the cubes' own state."""

    def __init__(self, store: MetadataStore, clock: Clock, files: VersionFiles | None = None) -> None:
        """Keep vectors of READY versions in `files`, the object store; None: in their records.

        A service without files reads all that is not a vector.
        """
        super().__init__(store)
        self.clock = clock
        self.files = files
        self.nodes = SegmentNodes(store, None if files is None else VectorFiles(files))
        self.whole_segment = self.nodes.whole
        self.update_segment = self.nodes.update

    # -- cubes ------------------------------------------------------------------------------------------

    def control(self, cube: str) -> CubeControl:
        return standing(self.store, paths.cube_control(cube), CubeControl, f"cube {cube}")[0]

    def other_controls(self, cube: str) -> dict[str, CubeControl]:
        """Return those of the other cubes by name, without those that are forged or damaged."""
        return read_each((name for name in self.cubes() if name != cube), self.control).found

    def cube_id(self, cube: str) -> str:
        """Return the id of the cube's creation: it is another cube when it was dropped and recreated."""
        return change_log(self.store, cube, None)[0].cube_id

    def update_control(
        self,
        cube: str,
        change: Callable[[CubeControl], CubeControl],
        *,
        cube_id: str | None = None,
        requires: Callable[[], Sequence[Operation]] = tuple,
    ) -> CubeControl:
        """Change the control record. `cube_id` is the creation that is meant, None any; `requires` is called
        in each round, after `change`. Raises NotFound where the cube is gone."""
        return updates.change(
            self.store,
            paths.cube_control(cube),
            CubeControl,
            change,
            f"cube {cube}",
            lambda: (*self._of(cube, cube_id), *requires()),
        )

    def published_watermark(self, cube: str) -> WatermarkRecord:
        """Return what was published, without a value and without windows where nothing was published yet."""
        return read(self.store, paths.cube_watermark(cube), WatermarkRecord) or WatermarkRecord()

    def published_watermark_ms(self, cube: str) -> int | None:
        return self.published_watermark(cube).low_watermark_ms

    def publish_watermark(
        self, cube: str, wanted: WatermarkRecord, *, cube_id: str | None = None
    ) -> WatermarkRecord:
        """Persist a low watermark; a smaller one than before is not taken, nor are windows before the last
        that was decided. Returns what stands. `cube_id` is the creation that is meant, None any."""

        def changed(record: WatermarkRecord | None) -> WatermarkRecord:
            return wanted if record is None else _later(record, wanted)

        return update(
            self.store,
            paths.cube_watermark(cube),
            WatermarkRecord,
            changed,
            lambda: (*self._exists(cube), *self._of(cube, cube_id)),
        )

    def set_replay_from(
        self, cube: str, replica_set: str, offsets: Offsets, *, cube_id: str | None = None
    ) -> None:
        """Add a replica set's report; what it reported before of other partitions, or further on, still
        stands. `cube_id`: of the creation that it is about; None: of any."""

        def said(before: ReplayFrom | None) -> ReplayFrom:
            known = {} if before is None else before.offsets
            return ReplayFrom({**known, **{p: max(at, known.get(p, at)) for p, at in offsets.items()}})

        path = paths.replay_from(cube, replica_set)
        update(self.store, path, ReplayFrom, said, lambda: (*self._exists(cube), *self._of(cube, cube_id)))

    def lower_replay_from(self, cube: str, cuts: Offsets) -> None:
        """Take back reports beyond these offsets: they are of records that the topic's log has lost."""

        def lowered(before: ReplayFrom | None) -> ReplayFrom | None:
            if before is None:
                return None
            return ReplayFrom({p: min(at, cuts.get(p, at)) for p, at in before.offsets.items()})

        for name in self.store.children(paths.replay_from_all(cube)):
            path = paths.replay_from(cube, name)
            update(self.store, path, ReplayFrom, lowered, lambda: self._exists(cube))

    def replay_from(self, cube: str, control: CubeControl | None = None) -> Offsets:
        """Return, per partition, the smallest offset that history may still need. `control`: of the cube,
        where it was read just now.

        A replica set's word says that history holds everything below it, which stays true for ever: so the
        largest report counts, whichever has the partition now, and one from an earlier stay does no harm.
        """
        combined = dict((control or self.control(cube)).first_offsets)
        for name in self.store.children(paths.replay_from_all(cube)):
            report = read(self.store, paths.replay_from(cube, name), ReplayFrom)
            for partition, offset in report.offsets.items() if report is not None else ():
                combined[partition] = max(offset, combined.get(partition, offset))
        return combined

    # -- segments ---------------------------------------------------------------------------------------

    def segment(self, cube: str, name: str) -> SegmentRecord | None:
        """Return the record with the vectors of its READY version. Raises Corrupted, Unavailable."""
        record = self.nodes.segment(cube, name)
        return None if record is None else self.nodes.whole(record)

    def segments(self, cube: str) -> dict[str, SegmentRecord]:
        """Return all records with the vectors of their READY versions, ordered by start.

        It reads a file for each: views, which follow the records, read none. Raises Corrupted, Unavailable.
        """
        return {name: self.nodes.whole(record) for name, record in self.nodes.segments(cube).items()}

    def remove_segment(self, cube: str, name: str, *, cube_id: str | None = None) -> None:
        """Forget a record, with its entry in the ChangeLog. Only below the purge horizon. `cube_id`: of the
        creation that it is of; None: of any."""
        self.nodes.remove(cube, name, cube_id=cube_id, horizon_ms=self.control(cube).horizon_ms)

    def under_epoch(self, cube: str, assignment_epoch: int) -> Operation:
        """Return the requirement that the cube's assignment is still of that epoch.

        Raises Refused where it is not.
        """
        path = paths.cube_control(cube)
        control, node = standing(self.store, path, CubeControl, f"cube {cube}")
        epoch = control.assignment_epoch
        if epoch != assignment_epoch:
            raise Refused(f"cube {cube} is reassigned", expected=f"epoch {assignment_epoch}", found=epoch)
        return Check(path, node.version)

    def _exists(self, cube: str) -> tuple[Operation, ...]:
        """Return the requirement that the cube is still there, lest a late writer leave half a cube
        behind.
        """
        self.control(cube)
        return (Check(paths.cube_control(cube), -1),)

    def _of(self, cube: str, cube_id: str | None) -> tuple[Operation, ...]:
        """Return the requirement that the cube is of this creation; nothing is required where that is
        None.
        """
        if cube_id is None:
            return ()
        _, node = change_log(self.store, cube, cube_id)
        return (Check(paths.cube_changes(cube), node.version),)


def _later(before: WatermarkRecord, wanted: WatermarkRecord) -> WatermarkRecord:
    known = [at for at in (before.low_watermark_ms, wanted.low_watermark_ms) if at is not None]
    forward = not before.windows or (
        bool(wanted.windows) and wanted.windows[-1].window_end_ms > before.windows[-1].window_end_ms
    )
    return msgspec.structs.replace(
        before,
        low_watermark_ms=max(known, default=None),
        windows=wanted.windows if forward else before.windows,
    )
