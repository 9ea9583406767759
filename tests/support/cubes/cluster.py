"""An in-process cluster on the memory twins: real receiver cores and a real coordinator's work, stepped.

No threads of ours: the caller decides who steps when. History is built by reading the real staged parts,
and kept as tables by the folder that a build was given.
"""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from rtolap.columnar.schema import physical_schema
from rtolap.cubes.format.history import check_base, describe_file
from rtolap.cubes.format.manifest import MANIFEST_NAME, CuboidEntry, HistoryManifest, encode
from rtolap.cubes.format.staged import read_staged_manifest
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.kafka.interfaces import OutRecord
from rtolap.metadata import paths
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import ReceiverRecord, SegmentRecord
from rtolap.metadata.store import Delete
from rtolap.model.cube import Schema
from rtolap.object_store.store import open_store
from rtolap.protocols.coordinator.messages import BuildSpecMessage

from tests.support.batches.drawn import SaidByBatch
from tests.support.cubes.builders import Event, spec_losses
from tests.support.cubes.mortal_coordinator import MortalCoordinator
from tests.support.cubes.stepped_receiver import Receiver
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryAdmin, MemoryProducer
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

BASE_FILE = "base/part-0.parquet"
REPLICA_SETS = {"left": 2, "right": 2, "spare": 1}  # the last has no partition to begin with


class Cluster:
    def __init__(
        self, schema: Schema, folder: Path, settings: ReceiverSettings, *, partitions: int = 4, start_ms: int
    ) -> None:
        self.schema, self.folder = schema, folder
        self.cube = schema.cube.name
        self.clock = ManualClock(start_ms)
        self.broker = MemoryBroker()
        self.producer = MemoryProducer(self.broker)
        self.admin = MemoryAdmin(self.broker)
        self.admin.create_topic(schema.table.topic, partitions)
        self.admin.create_topic(schema.table.dead_letter_topic, 1)
        self.ensemble = MemoryEnsemble()
        self.session = MemoryStore(self.ensemble)
        self.store = open_store((folder / "store").as_uri())
        self.store.claim()
        self.metadata = ClusterMetadata(self.session, self.clock, self.store)
        self.log: dict[int, list[Event | None]] = {part: [] for part in range(partitions)}
        self.history: dict[str, pa.Table] = {}
        self.staged_batches: dict[str, SaidByBatch] = {}  # by the path of a part
        self.said_by_batches: dict[str, SaidByBatch] = {}  # by the location of a version that began with one
        self._low_watermark_ms: int | None = None
        self.metadata.create_table(schema.table)
        self.metadata.create_cube(schema.cube)
        assignment = {name: tuple(range(at, partitions, 2)) for at, name in enumerate(("left", "right"))}
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
            Receiver(self, f"{name}-{number}", name, settings)
            for name, count in REPLICA_SETS.items()
            for number in range(count)
        ]
        for receiver in self.receivers:
            receiver.leading = receiver.name.endswith("-0")
            self.metadata.register_receiver(
                ReceiverRecord(receiver.name, "127.0.0.1", 1, receiver.replica_set)
            )
            self.metadata.announce_live(receiver.name, "first")
        self.coordinator = self._new_coordinator()

    def _new_coordinator(self) -> MortalCoordinator:
        return MortalCoordinator(self.ensemble, self.clock, self.admin, (self.folder / "store").as_uri())

    def alive(self) -> list[Receiver]:
        """Return the receivers that live."""
        return [receiver for receiver in self.receivers if receiver.alive]

    def kill_set(self, replica_set: str) -> None:
        """All receivers of a replica set are gone, with their sessions."""
        for receiver in self.receivers:
            if receiver.replica_set == replica_set and receiver.alive:
                receiver.alive = False
                self.session.commit([Delete(paths.receiver_live(receiver.name))])

    def revive_set(self, replica_set: str) -> None:
        """They start again with their disks."""
        for receiver in self.receivers:
            if receiver.replica_set == replica_set and not receiver.alive:
                receiver.crash()
                receiver.alive = True
                self.metadata.announce_live(receiver.name, "again")

    def consumer(self) -> MemoryConsumer:
        return MemoryConsumer(self.broker, self.schema.table.topic, with_create_ms=True)

    def fail_over(self) -> None:
        self.coordinator.close()
        self.coordinator = self._new_coordinator()

    def close(self) -> None:
        self.coordinator.close()
        self.session.close()

    def produce(self, partition: int, value: bytes | None, event: Event | None) -> None:
        record = OutRecord(value, partition=partition, timestamp_ms=self.clock.now_ms())
        self.producer.produce(self.schema.table.topic, [record])
        self.log[partition].append(event)

    def cut(self, partition: int, end: int) -> None:
        """Cut the partition's log at the offset."""
        self.broker.cut(self.schema.table.topic, partition, end)
        del self.log[partition][end:]

    def low_watermark_ms(self) -> int | None:
        """Return the low watermark as the coordinator has it: the least, over partitions, of what anybody has
        seen, which never falls."""
        marks: list[int] = []
        for part in self.log:
            seen = [
                counters.watermark_ms
                for receiver in self.receivers
                if (counters := receiver.core.progress.counters.get(part)) is not None
                and counters.watermark_ms is not None
            ]
            if not seen:
                return self._low_watermark_ms
            marks.append(max(seen))
        self._low_watermark_ms = max(min(marks), self._low_watermark_ms or min(marks))
        return self._low_watermark_ms

    def until_ms(self) -> int | None:
        """Return the moment from which on a revision of the cube has the events; None: there is none."""
        revision = self.metadata.cube(self.cube).revision
        return None if revision is None else revision.until_ms

    # -- history ----------------------------------------------------------------------------------------

    def records(self) -> dict[str, SegmentRecord]:
        return self.metadata.segments(self.cube)

    def build(self, spec: BuildSpecMessage) -> None:
        """Do a Spark job's work: read the version before and the staged parts, write the manifest last."""
        tables: list[pa.Table] = []
        if spec.previous_location is not None:
            check_base(self.store, spec.previous_location, read_all=True)
            tables.append(self.history[spec.previous_location])
        for part in spec.parts:
            manifest = read_staged_manifest(self.store, part.path)
            for entry in manifest.files:
                tables.append(pq.read_table(io.BytesIO(self.store.read(f"{part.path}/{entry.name}"))))
        plain = physical_schema(self.schema, self.schema.cube.all_dimensions, None, plain=True)
        built = pa.concat_tables(
            [plain.empty_table(), *(table.select(plain.names).cast(plain) for table in tables)]
        )
        self.history[spec.location] = built
        if spec.batch:
            self.said_by_batches[spec.location] = self.staged_batches[spec.parts[0].path]
        elif spec.previous_location in self.said_by_batches:
            self.said_by_batches[spec.location] = self.said_by_batches[spec.previous_location]
        sink = io.BytesIO()
        pq.write_table(built, sink)
        self.store.write(f"{spec.location}/{BASE_FILE}", sink.getvalue())
        base = describe_file(self.store, spec.location, BASE_FILE)
        whole = HistoryManifest(
            cube=spec.cube,
            segment=spec.segment,
            version=spec.version,
            build_id=spec.build_id,
            covered=spec.covered,
            events=sum(built.column("__rows").to_pylist()),
            cuboids=(CuboidEntry("base", self.schema.cube.all_dimensions, base.rows, (base,)),),
            losses=spec_losses(spec),
        )
        self.store.write(f"{spec.location}/{MANIFEST_NAME}", encode(whole))

    # -- refused records --------------------------------------------------------------------------------

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
