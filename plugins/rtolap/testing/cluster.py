"""An in-process cluster on the memory twins: real receiver cores, a stepped stand-in for everything else.

No threads of ours: the caller decides who steps when. History is built by reading the real staged parts,
and kept as plain answers by segment and version.
"""

from __future__ import annotations

import io
import random
import shutil
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from rtolap.base.clock import ManualClock
from rtolap.base.errors import CommitConflict, CommitUnknown, Refused, StaleSnapshot, Unavailable
from rtolap.format.object_store import open_store
from rtolap.format.staged import read_staged_manifest
from rtolap.metadata import segments
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.memory import MemoryEnsemble, MemoryStore
from rtolap.metadata.records import BuildAttempt, SegmentRecord
from rtolap.model.cube import Schema
from rtolap.model.segment import parse_segment_name
from rtolap.model.segment_states import SegmentState
from rtolap.receiver import fragments
from rtolap.receiver.ingest import CubeReceiver
from rtolap.receiver.query_service import answer
from rtolap.receiver.realign import RangeReader, realign_job
from rtolap.receiver.settings import ReceiverSettings
from rtolap.receiver.states import ConsumerState
from rtolap.receiver.upload import Uploader, close_segment, upload_job
from rtolap.receiver.view import CubeView
from rtolap.stream.consumer import OutRecord
from rtolap.stream.memory import MemoryConsumer
from rtolap.stream.memory_broker import MemoryBroker
from rtolap.stream.memory_out import MemoryAdmin, MemoryProducer
from rtolap.testing.builders import DIMENSIONS, PARTIALS, Event
from rtolap.testing.recount import Answer, from_table, merge_into, recount
from rtolap.wire.receiver import ANSWER_KEY, PartialAnswer, PartialQuery, Snapshot

PASSING = (CommitConflict, CommitUnknown, Refused, Unavailable)


class Receiver:
    """A core with what stands around it in a process. `crash` loses memory, `lose_disk` everything."""

    def __init__(self, cluster: Cluster, name: str, replica_set: str, settings: ReceiverSettings) -> None:
        self.cluster, self.name, self.replica_set = cluster, name, replica_set
        self.folder = cluster.folder / name
        self.settings = settings
        self.leading = False
        self.told_epoch = -1  # of the assignment for which it has read where to start
        self.reader = RangeReader(
            cluster.schema, cluster.consumer, cluster.clock, settings.realign_records_max
        )
        self.uploader = Uploader(
            cluster.schema,
            replica_set=replica_set,
            metadata=cluster.metadata,
            store=cluster.store,
            reader=self.reader,
        )
        self.view = CubeView()
        self.core = self._core()

    def _core(self) -> CubeReceiver:
        return CubeReceiver(
            self.cluster.schema,
            replica_set=self.replica_set,
            consumer=self.cluster.consumer(),
            producer=self.cluster.producer,
            folder=self.folder,
            clock=self.cluster.clock,
            settings=self.settings,
        )

    def crash(self) -> None:
        self.core, self.view, self.told_epoch = self._core(), CubeView(), -1

    def lose_disk(self) -> None:
        shutil.rmtree(self.folder)
        self.crash()

    def look(self) -> None:
        """Take a fresh view of the cluster; between looks it acts on an old one."""
        metadata, cube = self.cluster.metadata, self.cluster.cube
        epoch = metadata.control(cube).assignment_epoch
        offsets = metadata.replay_from(cube) if epoch != self.told_epoch else self.view.start_offsets
        self.told_epoch = epoch
        self.view = CubeView(
            control=metadata.control(cube),
            records={record.start_ms: record for record in metadata.segments(cube).values()},
            start_offsets=offsets,
            leading=self.leading,
            low_watermark_ms=self.cluster.low_watermark_ms(),
        )

    def consume(self) -> bool:
        return self.core.step(replace(self.view, leading=self.leading))

    def close_due(self) -> None:
        for one in self.core.closings():
            close_segment(
                self.cluster.metadata,
                self.cluster.schema,
                one.start_ms,
                one.vector,
                by=f"{self.name}: {one.why}",
            )

    def realign(self) -> bool:
        job = realign_job(self.core.state, self.core.held)
        if job is None:
            return False
        return self.core.apply_realigned(
            job.start_ms, (job.table,), self.reader.read(job.start_ms, job.pieces)
        )

    def upload(self, times: int = 1) -> bool:
        if not self.leading:
            return False
        control = self.cluster.metadata.control(self.cluster.cube)
        job = upload_job(self.cluster.schema, self.core.state, control, self.view.records)
        if job is None:
            return False
        for _ in range(times):
            self.uploader.upload(job, control)
        return True

    def merge(self) -> None:
        job = fragments.merge_job(
            self.core.state.segments,
            fragments_max=self.settings.fragments_max,
            rows_max=self.settings.merge_rows_max,
        )
        if job is not None:
            merged = fragments.merge(self.cluster.schema, self.core.file.fragments, job)
            self.core.apply_merged(job, merged)

    def checkpoint(self) -> None:
        self.core.checkpoint()
        if self.leading:
            self.cluster.metadata.set_replay_from(
                self.cluster.cube, self.replica_set, self.core.replay_from()
            )


class Cluster:
    def __init__(
        self, schema: Schema, folder: Path, settings: ReceiverSettings, *, partitions: int = 4, start_ms: int
    ) -> None:
        self.schema, self.folder = schema, folder
        self.cube = schema.cube.name
        self.clock = ManualClock(start_ms)
        self.broker = MemoryBroker()
        self.producer = MemoryProducer(self.broker)
        admin = MemoryAdmin(self.broker)
        admin.create_topic(schema.table.topic, partitions)
        admin.create_topic(schema.table.dead_letter_topic, 1)
        self.ensemble = MemoryEnsemble()
        self.session = MemoryStore(self.ensemble)
        self.metadata = ClusterMetadata(self.session, self.clock)
        self.store = open_store((folder / "store").as_uri())
        self.log: dict[int, list[Event | None]] = {part: [] for part in range(partitions)}
        self.history: dict[str, dict[int, Answer]] = {}
        self.seen: dict[int, int] = {}
        self.metadata.create_table(schema.table)
        self.metadata.create_cube(schema.cube)
        names = ("left", "right")
        assignment = {
            name: tuple(p for p in range(partitions) if p % len(names) == at) for at, name in enumerate(names)
        }
        self.metadata.update_control(
            self.cube,
            lambda control: msgspec.structs.replace(
                control,
                enabled=True,
                assignment=assignment,
                assignment_epoch=1,
                first_offsets=dict.fromkeys(range(partitions), 0),
            ),
        )
        self.receivers = [
            Receiver(self, f"{name}-{number}", name, settings) for name in names for number in range(2)
        ]
        for receiver in self.receivers:
            receiver.leading = receiver.name.endswith("-0")

    def consumer(self) -> MemoryConsumer:
        return MemoryConsumer(self.broker, self.schema.table.topic, with_create_ms=True)

    def close(self) -> None:
        self.session.close()

    def produce(self, partition: int, value: bytes | None, event: Event | None) -> None:
        record = OutRecord(value, partition=partition, timestamp_ms=self.clock.now_ms())
        self.producer.produce(self.schema.table.topic, [record])
        self.log[partition].append(event)

    def low_watermark_ms(self) -> int | None:
        """As the coordinator has it: per partition what any receiver has seen, over partitions the least."""
        marks: list[int] = []
        for part in self.log:
            seen = [
                counters.watermark_ms
                for receiver in self.receivers
                if (counters := receiver.core.progress.counters.get(part)) is not None
                and counters.watermark_ms is not None
            ]
            if not seen:
                return None
            marks.append(max(seen))
        return min(marks)

    # -- history ----------------------------------------------------------------------------------------

    def records(self) -> dict[str, SegmentRecord]:
        return self.metadata.segments(self.cube)

    def build(self, record: SegmentRecord) -> None:
        """Start an attempt, read the staged parts, promote: what Spark and the coordinator do."""
        build_id = uuid.uuid4().hex
        version = record.version + 1
        window = record.range
        attempt = BuildAttempt(build_id, version, self.clock.now_ms(), f"history/{build_id}")
        self.metadata.update_segment(
            self.cube, window, lambda r: r if r.build == attempt else segments.start_build(r, attempt)
        )
        built: Answer = {}
        merge_into(built, self.history.get(record.name, {}).get(record.version, {}))
        for part in record.parts:
            manifest = read_staged_manifest(self.store, part.path)
            for entry in manifest.files:
                data = self.store.read(f"{part.path}/{entry.name}")
                merge_into(built, from_table(pq.read_table(io.BytesIO(data))))
        self.history.setdefault(record.name, {})[version] = built
        events = sum(row[0] for row in built.values())
        self.metadata.update_segment(
            self.cube,
            window,
            lambda r: segments.promote(r, build_id, events=events, now_ms=self.clock.now_ms()),
        )

    def build_next(self) -> bool:
        waiting = [r for r in self.records().values() if r.state is SegmentState.REMOTE_PERSISTED]
        if waiting:
            self.build(waiting[0])
        return bool(waiting)

    def requeue(self, name: str) -> None:
        self.metadata.update_segment(
            self.cube,
            parse_segment_name(name),
            lambda r: segments.requeue(r, now_ms=self.clock.now_ms(), by="operator"),
        )

    # -- queries ----------------------------------------------------------------------------------------

    def ask(
        self, choose: Callable[[str], Receiver], span: tuple[int, int] | None = None, *, remember: bool = True
    ) -> tuple[Answer, dict[int, int]] | None:
        """History of one snapshot plus each replica set's partials; None when somebody cannot answer yet."""
        control = self.metadata.control(self.cube)
        ready = {name: r for name, r in self.records().items() if r.version > 0}
        start_ms, end_ms = span if span is not None else (None, None)
        versions = {name: r.version for name, r in ready.items()}
        snapshot = Snapshot(versions, None, start_ms, end_ms, control.assignment_epoch)
        query = PartialQuery(self.cube, DIMENSIONS, PARTIALS, snapshot, None, dict(self.seen))
        found: Answer = {}
        positions: dict[int, int] = {}
        for replica_set in sorted(control.assignment):
            receiver = choose(replica_set)
            core = receiver.core
            if core.consumer_state is ConsumerState.STOPPED:
                return None
            try:
                table = answer(self.schema, core.state, query, owned=core.owned, receiver_id=receiver.name)
            except (Unavailable, StaleSnapshot):
                return None
            said = msgspec.json.decode(table.schema.metadata[ANSWER_KEY], type=PartialAnswer)
            assert not positions.keys() & said.positions.keys(), "two replica sets answer for a partition"
            positions.update(said.positions)
            merge_into(found, from_table(table))
        for name, record in ready.items():
            if span is None or (record.start_ms < span[1] and record.end_ms > span[0]):
                merge_into(found, self.history[name][record.version])
        if remember:
            self.seen = positions
        return found, positions

    def expected(self, positions: dict[int, int], span: tuple[int, int] | None = None) -> Answer:
        """The recount of the prefix that the positions name."""
        window_ms = self.schema.cube.segment.window_ms
        return recount(
            event
            for part, events in self.log.items()
            for event in events[: positions[part]]
            if event is not None
            and (span is None or (event.segment_ms < span[1] and event.segment_ms + window_ms > span[0]))
        )

    def malformed(self) -> set[str]:
        topic = self.schema.table.topic
        return {
            f"{topic}/{part}/{at}"
            for part, events in self.log.items()
            for at, event in enumerate(events)
            if event is None
        }

    def dead_letters(self) -> set[str]:
        found: set[str] = set()
        for log in self.broker.logs(self.schema.table.dead_letter_topic):
            found |= {record.key.decode() for record in log.records if record.key is not None}
        return found


def chooser(cluster: Cluster, random_: random.Random) -> Callable[[str], Receiver]:
    def choose(replica_set: str) -> Receiver:
        return random_.choice([r for r in cluster.receivers if r.replica_set == replica_set])

    return choose
