"""A cube that closes by an application, with its hosts, receivers and coordinators, in one process: what may
happen to it.

Hosts log in order, each to one partition, and may stall. Receivers crash, lose disks, believe to lead when
they do not, act on old views; batches and answers are lost, repeated and late; coordinators and assignments
change.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
from rtolap.base.errors import CommitConflict, CommitUnknown, NotFound, NotLeader, Refused, Unavailable
from rtolap.coordinator.applications.registry import Applications
from rtolap.coordinator.closable import Closable
from rtolap.coordinator.heartbeats import Heartbeats
from rtolap.coordinator.watermarks import Watermarks
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.kafka.interfaces import OutRecord
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.model.application import (
    Application,
    ApplicationSource,
    CubeWatermark,
    HostList,
    HostPrecise,
    Registry,
    Rule,
    Sink,
)
from rtolap.model.cube import Schema
from rtolap.model.table import Column
from rtolap.object_store.store import open_store
from rtolap.protocols.watermark import messages as wire

from tests.support.cubes.builders import START_MS, WINDOW_MS, small_schema
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryAdmin, MemoryProducer
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore
from tests.support.watermarks.application_receiver import ApplicationReceiver

NAME = "logs"
MARK = CubeWatermark(NAME, "web", "cubes")
PARTITIONS = 4
HOSTS = tuple(f"host-{n}" for n in range(6))
REPLICA_SETS = ("left", "right")
PASSING = (CommitConflict, CommitUnknown, NotFound, NotLeader, Refused, Unavailable)


def hosted_schema() -> Schema:
    schema = small_schema(watermark=MARK)
    columns = (*schema.table.columns, Column("host", "string"))
    return Schema(msgspec.structs.replace(schema.table, columns=columns, host_column="host"), schema.cube)


def application() -> Application:
    hosts = HostList(registry=Registry(lease_ms=86_400_000))
    source = ApplicationSource(name=MARK.source, rule=Rule(host_precise=HostPrecise(0)), hosts=hosts)
    return Application(
        name=NAME, sources=(source,), sinks=(Sink(name=MARK.sink),), edges=((MARK.source, MARK.sink),)
    )


class ApplicationWorld:
    """A cluster, with its log, its hosts, and all that may happen to it."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random, self.seed = random.Random(seed), seed
        self.counts: Counter[str] = Counter()
        self.schema, self.folder = hosted_schema(), folder
        self.cube = self.schema.cube.name
        self.clock = ManualClock(START_MS)
        self.broker = MemoryBroker()
        self.producer = MemoryProducer(self.broker)
        admin = MemoryAdmin(self.broker)
        admin.create_topic(self.schema.table.topic, PARTITIONS)
        admin.create_topic(self.schema.table.dead_letter_topic, 1)
        self.ensemble = MemoryEnsemble()
        self.session = MemoryStore(self.ensemble)
        self.metadata = ClusterMetadata(self.session, self.clock)
        self.store = open_store((folder / "store").as_uri())
        self.log: dict[int, list[int]] = {part: [] for part in range(PARTITIONS)}  # event times
        self.last: dict[tuple[int, int], int] = {}  # (segment start, partition) → offset of its last event
        self.reached_ms = dict.fromkeys(HOSTS, START_MS)
        self.stalled: set[str] = set()
        self.term = 0
        self.leads: dict[str, tuple[str, int]] = {}  # replica set → who leads it, and since which term
        self.coordinators = 0
        self._lead_coordinator()
        self.applications.create(msgspec.to_builtins(application()))
        change = wire.HostsChange(level=MARK.source, action="register", hosts=HOSTS)
        self.applications.running(NAME).change_hosts(change)
        self.metadata.create_table(self.schema.table)
        self.metadata.create_cube(self.schema.cube)
        self.assign({"left": (0, 2), "right": (1, 3)}, first=True)
        settings = ReceiverSettings(
            batch_records_max=self.random.choice((10, 40, 200)),
            flush_rows=self.random.choice((100, 1000)),
            checkpoint_interval_s=20.0,
            disk_free_bytes_min=0,
        )
        self.receivers = [
            ApplicationReceiver(self, f"{name}-{number}", name, settings)
            for name in REPLICA_SETS
            for number in range(2)
        ]
        for name in REPLICA_SETS:
            self.elect(name)

    # -- what receivers ask for ---------------------------------------------------------------------------

    def consumer(self) -> MemoryConsumer:
        return MemoryConsumer(self.broker, self.schema.table.topic, with_create_ms=True)

    def low_watermark_ms(self) -> int | None:
        return None

    def deliver(self, batch: wire.ReportBatch) -> wire.ReportAnswer:
        return self.applications.running(NAME).report(batch)

    # -- what may happen ----------------------------------------------------------------------------------

    def produce(self) -> None:
        """Let hosts log up to now, in order; the stalled ones keep what they have for later."""
        for host in self.random.sample(HOSTS, self.random.randrange(3, len(HOSTS) + 1)):
            if host not in self.stalled:
                self.hand_on(host)

    def hand_on(self, host: str) -> None:
        partition = HOSTS.index(host) % PARTITIONS
        while self.reached_ms[host] <= self.clock.now_ms():
            at_ms = self.reached_ms[host]
            body = json.dumps({"ts": at_ms, "kind": "a", "amount": 1, "host": host}).encode()
            record = OutRecord(body, partition=partition, timestamp_ms=self.clock.now_ms())
            self.producer.produce(self.schema.table.topic, [record])
            self.last[at_ms // WINDOW_MS * WINDOW_MS, partition] = len(self.log[partition])
            self.log[partition].append(at_ms)
            self.reached_ms[host] += self.random.randrange(3_000, 25_000)

    def advance(self) -> None:
        self.clock.advance_ms(self.random.randrange(1, WINDOW_MS))

    def stall(self) -> None:
        """Stall some hosts, or nobody: mostly short, so that windows close between faults and not only after
        them."""
        self.stalled = set(self.random.sample(HOSTS, self.random.choice((0, 0, 0, 1, 2))))

    def any(self) -> ApplicationReceiver:
        return self.random.choice(self.receivers)

    def work(self) -> None:
        """Do most of a round of somebody; some are slow to read, or to notice who leads, or to close."""
        receiver = self.any()
        for action in receiver.everything:
            if self.random.random() < receiver.diligence[action.__name__]:
                self.attempt(action)
        if self.random.random() < 0.05:
            receiver.change_habits()

    def elect(self, replica_set: str | None = None, chosen: ApplicationReceiver | None = None) -> None:
        """Elect a leader, which learns of it later; the one before may not have noticed."""
        name = replica_set or self.random.choice(REPLICA_SETS)
        self.term += 1
        if chosen is None:
            chosen = self.random.choice([one for one in self.receivers if one.replica_set == name])
        self.leads[name] = (chosen.name, self.term)
        self.counts["elections"] += 1

    def cut_off(self) -> None:
        """Cut off a leader: it lags, and ZooKeeper has lost sight of it, which it does not notice: another
        one leads."""
        replica_set = self.random.choice(REPLICA_SETS)
        name, _ = self.leads[replica_set]
        for one in self.receivers:
            if one.name == name:
                one.diligence |= {"notice": 0.0, "consume": 0.05, "hear": 1.0, "close_due": 1.0}
                others = [other for other in self.receivers if other.replica_set == replica_set]
                self.elect(replica_set, self.random.choice([other for other in others if other is not one]))

    def crash(self) -> None:
        """Crash a process; its session ends with it."""
        receiver = self.any()
        if self.leads[receiver.replica_set][0] == receiver.name:
            self.elect(receiver.replica_set)
        self.random.choice((receiver.crash, receiver.lose_disk))()
        self.counts["crashes"] += 1

    def tick(self) -> None:
        """Do as `Coordinator.tick`."""
        before = self.metadata.published_watermark(self.cube)
        self.watermarks.tick(self.cube)
        self.applications.tick()
        after = self.metadata.published_watermark(self.cube)
        assert (after.low_watermark_ms or 0) >= (before.low_watermark_ms or 0), f"seed {self.seed}: it fell"

    def _lead_coordinator(self) -> None:
        self.coordinators += 1
        term = f"term-{self.coordinators}"
        self.applications = Applications(self.session, self.clock, lambda: term)
        heartbeats = Heartbeats(self.clock)
        self.watermarks = Watermarks(self.metadata, heartbeats, Closable(self.applications, self.clock))

    def fail_over(self) -> None:
        self.applications.close()
        self._lead_coordinator()
        self.counts["coordinators"] += 1

    def reassign(self) -> None:
        owners = {part: self.random.choice(REPLICA_SETS) for part in range(PARTITIONS)}
        self.assign({n: tuple(p for p, o in owners.items() if o == n) for n in REPLICA_SETS}, first=False)
        self.counts["assignments"] += 1

    def assign(self, assignment: dict[str, tuple[int, ...]], *, first: bool) -> None:
        self.metadata.update_control(
            self.cube,
            lambda control: msgspec.structs.replace(
                control,
                enabled=True,
                assignment=assignment,
                assignment_epoch=control.assignment_epoch + 1,
                first_offsets=dict.fromkeys(range(PARTITIONS), 0) if first else control.first_offsets,
            ),
        )

    def attempt(self, action: Callable[[], object]) -> None:
        try:
            action()
        except PASSING as error:
            self.counts[type(error).__name__] += 1

    def close(self) -> None:
        self.applications.close()
        self.session.close()
