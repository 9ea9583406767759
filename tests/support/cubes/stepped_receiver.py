"""A receiver of the in-process cluster: a real core, stepped by whoever owns the run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from rtolap.cubes.receiver.answers.result_cache import ResultCache
from rtolap.cubes.receiver.core.closing_commits import close_segment
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.local import fragments
from rtolap.cubes.receiver.local.align import Vectors, vectors_of
from rtolap.cubes.receiver.local.realign import RangeReader, realign_job
from rtolap.cubes.receiver.local.slots import StateSlots
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.settled import PagedSegments
from rtolap.cubes.receiver.upload import Uploader, upload_job
from rtolap.cubes.receiver.views import CubeView, following
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.forwarding import ForwardingStore
from rtolap.metadata.records import NextAssignment
from rtolap.metadata.store import Watch
from rtolap.metadata.view import SegmentView
from rtolap.model.cube import Schema
from rtolap.object_store.store import ObjectStore

from tests.support.cubes.later_executor import LaterExecutor
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryProducer


class Surroundings(Protocol):
    """The parts of its cluster that a receiver needs."""

    schema: Schema
    cube: str
    folder: Path
    clock: ManualClock
    producer: MemoryProducer
    metadata: ClusterMetadata
    store: ObjectStore

    def consumer(self) -> MemoryConsumer: ...

    def low_watermark_ms(self) -> int | None: ...


class _Unwatched(ForwardingStore):
    """A store that tells of no change: who reads it decides when it looks."""

    def watch(self, path: str, changed: Callable[[], None]) -> Watch:
        return _NoWatch()


class _NoWatch:
    def stop(self) -> None:
        """Nothing was begun."""


class Receiver:
    """A core with what stands around it in a process. `crash` loses memory, `lose_disk` everything.

    `ahead` stands beside it while a move prepares an assignment, which is its `planned`: it takes the place
    of this one at the second look that sees the assignment, so that this one follows it for a while.
    """

    def __init__(
        self,
        cluster: Surroundings,
        name: str,
        replica_set: str,
        settings: ReceiverSettings,
        planned: NextAssignment | None = None,
    ) -> None:
        self.planned = planned
        self.ahead: Receiver | None = None
        self.cluster, self.name, self.replica_set = cluster, name, replica_set
        self.schema = cluster.schema if planned is None else cluster.metadata.schema(cluster.cube)
        self.slots = StateSlots(cluster.folder / name)
        self.folder = self.slots.base if planned is None else self.slots.ahead(planned.epoch)
        self.settings = settings
        self.leading = False
        self.alive = True  # as a process; one that is dead keeps its disk, and nobody steps it
        self.started_epoch = -1  # of the assignment for which it has read where to start
        self.reader = RangeReader(
            cluster.schema,
            cluster.consumer,
            cluster.clock,
            settings.realign_records_max,
            lambda: self.core.confirm_topic(),
        )
        self.uploader = Uploader(
            cluster.schema,
            cube_id=cluster.metadata.cube_id(cluster.cube),
            replica_set=replica_set,
            metadata=cluster.metadata,
            store=cluster.store,
            reader=self.reader,
        )
        self.view = CubeView()
        self.segments: SegmentView | None = None
        self.known: object = None
        self.beside = LaterExecutor()
        self.core = self._core()
        self.results = self._results()

    def _core(self) -> CubeReceiver:
        return CubeReceiver(
            self.schema,
            replica_set=self.replica_set,
            consumer=self.cluster.consumer(),
            producer=self.cluster.producer,
            folder=self.folder,
            clock=self.cluster.clock,
            settings=self.settings,
            flush_beside=self.beside,
        )

    def _results(self) -> ResultCache:
        """Return a cache for which every table is worth a result, so that all of them are used, however
        small."""
        return ResultCache(self.schema, self.settings.result_bytes_max, table_rows_min=1)

    def crash(self) -> None:
        """Start again, by the definition that stands now."""
        self.schema = self.cluster.metadata.schema(self.cluster.cube)
        self.ahead = None
        control = self.cluster.metadata.control(self.cluster.cube)
        self.folder = self.slots.begin(control.assignment_epoch)
        self.slots.clean(control.next.epoch if control.next is not None else None)
        self.beside = LaterExecutor()  # what was still to be written out is not
        self.core, self.view, self.started_epoch = self._core(), CubeView(), -1
        self.segments = self.known = None
        self.results = self._results()

    def lose_disk(self) -> None:
        shutil.rmtree(self.slots.base)
        self.crash()

    def look(self) -> None:
        """Take a fresh view of the cluster; between looks it acts on an old one."""
        if self.planned is None:
            self._follow_move()
        metadata, cube = self.cluster.metadata, self.cluster.cube
        control = following(metadata.control(cube), self.planned)
        epoch = control.assignment_epoch
        offsets = metadata.replay_from(cube) if epoch != self.started_epoch else self.view.start_offsets
        self.started_epoch = epoch
        if self.segments is None:
            window_ms = self.schema.cube.segment.window_ms
            unwatched = ClusterMetadata(_Unwatched(metadata.store), self.cluster.clock, self.cluster.store)
            self.segments = SegmentView(unwatched, cube, by_page=True, with_frontier=True)
            self.settled = PagedSegments(unwatched, self.segments, window_ms)
        self.segments.refresh()
        known = self.segments.known()[1]
        if self.known is not known:
            self.known = known
            self.records = {record.start_ms: self.settled.whole(record) for record in known.open.values()}
        self.view = CubeView(
            control=control,
            records=self.records,
            settled=self.settled,
            start_offsets=offsets,
            leading=self.leading,
            low_watermark_ms=self.cluster.low_watermark_ms(),
        )

    def _follow_move(self) -> None:
        """Do a process's part in a move: see `ServedCubes._follow_move`."""
        ahead = self.ahead
        if ahead is not None and ahead.planned is not None:
            if self.view.control.assignment_epoch == ahead.planned.epoch:
                self._let_serve(ahead)
                return
            control = self.cluster.metadata.control(self.cluster.cube)
            stands = control.assignment_epoch == ahead.planned.epoch
            if not stands and (control.next is None or control.next.epoch != ahead.planned.epoch):
                self.ahead = None
                shutil.rmtree(ahead.folder, ignore_errors=True)
        control = self.cluster.metadata.control(self.cluster.cube)
        planned = control.warms(self.replica_set)
        if planned is not None and self.ahead is None:
            self.slots.clean(planned.epoch)
            self.ahead = Receiver(self.cluster, self.name, self.replica_set, self.settings, planned)
        if self.ahead is not None:
            self.ahead.look()

    def _let_serve(self, ahead: Receiver) -> None:
        self.core, self.results, self.beside = ahead.core, ahead.results, ahead.beside
        self.view, self.segments, self.known = ahead.view, ahead.segments, ahead.known
        if ahead.segments is not None:
            self.settled, self.records = ahead.settled, ahead.records
        self.started_epoch, self.folder, self.ahead = ahead.started_epoch, ahead.folder, None
        self.slots.promote(ahead.folder)
        self.slots.clean()

    def for_epoch(self, epoch: int | None) -> Receiver:
        """Return the one that answers for the assignment of that epoch: see `ahead.runner_of`."""
        if self.ahead is not None and self.ahead.planned is not None and self.ahead.planned.epoch == epoch:
            return self.ahead
        return self

    def vectors(self) -> dict[int, Vectors]:
        """Return the vectors of all segments, of those of its state as it has them: none where its tables are
        not aligned with any version yet."""
        state = self.core.state
        drop_late = self.schema.cube.late.policy == "drop"
        settled = {
            start: vectors_of(state.settled.record(start), drop_late=drop_late)
            for start in state.settled.versions(None, None)
            if start not in state.vectors and start not in state.segments
        }
        return {**settled, **state.vectors}

    def consume(self) -> bool:
        worked = self.core.step(replace(self.view, leading=self.leading))
        if lowered := dict(self.core.lowered):
            self.cluster.metadata.lower_replay_from(self.cluster.cube, lowered)
            self.core.forget_lowered(lowered)
        if self.ahead is not None:
            worked |= self.ahead.consume()
        return worked

    def consume_all(self) -> None:
        while self.consume():
            pass

    def close_due(self) -> None:
        for one in self.core.closings():
            close_segment(
                self.cluster.metadata,
                self.schema,
                one,
                by=f"{self.name}: {one.why}",
            )

    def realign(self) -> bool:
        if self.ahead is not None:
            self.ahead.realign()
        job = realign_job(self.core.state, self.core.valid_partitions)
        if job is None:
            return False
        return self.core.apply_realigned(
            job.start_ms,
            (job.table,),
            self.reader.read(job.start_ms, job.pieces, self.core.control.losses),
        )

    def upload(self, times: int = 1) -> bool:
        """Do the worker's part: it acts on the records as they are now, whatever the core's view is. From
        then on the core's lookups know them too, as its view does not before the next look."""
        if not self.leading:
            return False
        control = self.cluster.metadata.control(self.cluster.cube)
        records = self.view.records
        if self.segments is not None:
            self.segments.refresh()
            opened = self.segments.known()[1].open
            records = {record.start_ms: self.settled.whole(record) for record in opened.values()}
        job = upload_job(self.schema, self.core.state, control, records)
        if job is None:
            return False
        for _ in range(times):
            self.uploader.upload(job, control, self.core.file.fragments)
        return True

    def merge(self) -> None:
        """Do the worker's part: fewer fragments, cuboids beside them, however small they are."""
        if self.ahead is not None:
            self.ahead.merge()
        job = fragments.merge_job(self.core.state.segments, self.settings)
        if job is not None:
            merged = fragments.merge(self.schema, self.core.file.fragments, job)
            self.core.apply_merged(job, merged)
        for fragment in fragments.unverified(self.core.state):
            fragment.verify()
        for table in fragments.cuboid_jobs(self.core.state, rows_min=1):
            fragments.keep_cuboids(self.schema, self.core.state, table, self.settings.cuboid_bytes_max)

    def write_out(self) -> None:
        """Write the checkpoint that is under way to the disk; the core takes it over with its next step."""
        self.beside.run_all()
        if self.ahead is not None:
            self.ahead.write_out()

    def checkpoint(self) -> None:
        self.core.checkpoint()
        if self.ahead is not None:
            self.ahead.checkpoint()
        if self.leading:
            self.cluster.metadata.set_replay_from(
                self.cluster.cube, self.replica_set, self.core.replay_from()
            )

    def describe(self) -> str:
        core = self.core
        shown = (core.consumer_state.value, core.reason, core.state.positions, list(core.state.segments))
        return f"{self.name}: {shown}" + (f", ahead {self.ahead.describe()}" if self.ahead else "")


def assert_apart(receiver: Receiver, run: str) -> None:
    """Assert that no offset is claimed by two tables of a segment: the table that is read again would double
    it."""
    if receiver.ahead is not None:
        assert_apart(receiver.ahead, run)
    for start_ms, segment in receiver.core.state.segments.items():
        by_partition: dict[int, list[tuple[int, int]]] = {}
        for table in segment.tables:
            for partition, (start, end) in table.ranges.items():
                if start < (end := min(end, table.cuts.get(partition, end))):
                    by_partition.setdefault(partition, []).append((start, end))
        for partition, claims in by_partition.items():
            for before, after in pairwise(sorted(claims)):
                assert before[1] <= after[0], (
                    f"{run}: {receiver.name} claims {before} and {after} of partition {partition}, {start_ms}"
                )
