"""Receivers as processes, on real Kafka and ZooKeeper: exact before, during and after a kill -9."""

from __future__ import annotations

import io
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import RtolapError, Unauthorized
from rtolap.format.object_store import open_store
from rtolap.format.staged import read_staged_manifest
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.zookeeper import ZooKeeperStore
from rtolap.model.cube import Schema
from rtolap.model.segment_states import SegmentState
from rtolap.stream.consumer import OutRecord
from rtolap.stream.kafka import KafkaConsumer
from rtolap.stream.kafka_out import KafkaAdmin, KafkaProducer
from rtolap.testing.builders import (
    DIMENSIONS,
    PARTIALS,
    START_MS,
    WINDOW_MS,
    Event,
    random_event,
    small_schema,
)
from rtolap.testing.recount import Answer, from_table, merge_into, recount
from rtolap.wire.receiver import CubeStats, PartialQuery, Snapshot
from rtolap.wire.receiver_client import ReceiverClient

pytestmark = pytest.mark.integration

PARTITIONS = 2
TOKEN = "a-token-of-this-test"
SERVE = "from rtolap.cli.receiver import app; app()"


def wait_for(what: str, condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        time.sleep(0.05)


class World:
    """A cube on a topic of its own, and the processes that serve it."""

    def __init__(
        self, folder: Path, zookeeper: str, kafka: str, name: str, create_topic: Callable[..., str]
    ) -> None:
        schema = small_schema(name=name)
        table = msgspec.structs.replace(schema.table, name=name, topic=name)
        self.schema = Schema(table, msgspec.structs.replace(schema.cube, table=name))
        self.cube, self.folder, self.kafka = name, folder, kafka
        create_topic(name, PARTITIONS)
        self.zookeeper = ZooKeeperStore(zookeeper, root=f"/{name}")
        self.metadata = ClusterMetadata(self.zookeeper, SystemClock())
        self.metadata.create_table(table)
        self.metadata.create_cube(self.schema.cube)
        self.producer = KafkaProducer(kafka, client_id="test")
        self.log: dict[int, list[Event | None]] = {p: [] for p in range(PARTITIONS)}
        self.random = random.Random(7)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        token_file = folder / "token"
        token_file.write_text(TOKEN)
        self.environment = {
            **os.environ,
            "RTOLAP_ZOOKEEPER": zookeeper,
            "RTOLAP_ZOOKEEPER_ROOT": f"/{name}",
            "RTOLAP_KAFKA": kafka,
            "RTOLAP_OBJECT_STORE": (folder / "store").as_uri(),
            "RTOLAP_TOKEN_FILE": str(token_file),
        }

    def assign(self, first: dict[int, int]) -> None:
        self.metadata.update_control(
            self.cube,
            lambda control: msgspec.structs.replace(
                control,
                enabled=True,
                assignment={"left": tuple(range(PARTITIONS))},
                assignment_epoch=1,
                first_offsets=first,
            ),
        )

    def start(self, receiver: str) -> None:
        arguments = ["--id", receiver, "--replica-set", "left", "--port", "0"]
        arguments += ["--data-dir", str(self.folder / receiver), "--checkpoint-interval-s", "1"]
        with (self.folder / f"{receiver}.log").open("ab") as log:
            self.processes[receiver] = subprocess.Popen(
                [sys.executable, "-c", SERVE, "serve", *arguments],
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        wait_for(f"{receiver} serves", lambda: self.state(receiver) is not None)

    def end(self, receiver: str, number: int) -> int:
        process = self.processes.pop(receiver)
        process.send_signal(number)
        return process.wait(60)

    def close(self) -> None:
        for receiver in list(self.processes):
            self.end(receiver, signal.SIGKILL)
        self.producer.close()
        self.zookeeper.close()

    def produce(self, count: int) -> None:
        for _ in range(count):
            value, event = random_event(self.random, START_MS + len(self.log[0]) * 200)
            partition = self.random.randrange(PARTITIONS)
            self.producer.produce(self.cube, [OutRecord(value, partition=partition)])
            self.log[partition].append(event)
        self.producer.flush(30)

    def ends(self) -> dict[int, int]:
        return {p: len(events) for p, events in self.log.items()}

    def client(self, receiver: str, token: str = TOKEN) -> ReceiverClient:
        record = self.metadata.receivers()[receiver]
        return ReceiverClient(f"{record.host}:{record.port}", token)

    def state(self, receiver: str) -> CubeStats | None:
        try:
            with self.client(receiver) as client:
                return next((cube for cube in client.stats().cubes if cube.cube == self.cube), None)
        except (RtolapError, KeyError):
            return None

    def ask(self, receiver: str, at_least: dict[int, int]) -> tuple[Answer, dict[int, int]]:
        query = PartialQuery(self.cube, DIMENSIONS, PARTIALS, Snapshot(), None, at_least, 30_000)
        with self.client(receiver) as client:
            table, said = client.query(query)
        return from_table(table), said.positions

    def expected(self, positions: dict[int, int]) -> Answer:
        return recount(e for p, es in self.log.items() for e in es[: positions[p]] if e is not None)


@pytest.fixture
def world(
    tmp_path: Path, zookeeper: str, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> Iterator[World]:
    one = World(tmp_path, zookeeper, kafka, unique_name, create_topic)
    yield one
    one.close()


def test_two_receivers_stay_exact_while_their_leader_is_killed(world: World) -> None:
    world.assign(dict.fromkeys(range(PARTITIONS), 0))
    world.start("r0")
    wait_for("r0 leads", lambda: world.metadata.replica_set_leader("left") == "r0")
    world.start("r1")
    world.produce(1500)
    for receiver in ("r0", "r1"):
        answer, positions = world.ask(receiver, world.ends())
        assert positions == world.ends()
        assert answer == world.expected(positions)

    world.end("r0", signal.SIGKILL)
    world.produce(500)
    answer, positions = world.ask("r1", world.ends())
    assert answer == world.expected(world.ends())

    wait_for("r1 leads", lambda: world.metadata.replica_set_leader("left") == "r1")
    world.start("r0")
    answer, _ = world.ask("r0", world.ends())
    assert answer == world.expected(world.ends()), "after a crash: checkpoint and replay"

    before_ms = START_MS + 100 * WINDOW_MS
    world.metadata.update_control(
        world.cube, lambda c: msgspec.structs.replace(c, close_before_ms=before_ms, close_epoch=1)
    )
    segments = {e.segment_ms for es in world.log.values() for e in es if e is not None}

    def persisted() -> bool:
        records = world.metadata.segments(world.cube).values()
        return len(records) == len(segments) and all(
            r.state is SegmentState.REMOTE_PERSISTED for r in records
        )

    wait_for("all parts are uploaded", persisted)
    store = open_store((world.folder / "store").as_uri())
    for record in world.metadata.segments(world.cube).values():
        staged: Answer = {}
        for part in record.parts:
            for entry in read_staged_manifest(store, part.path).files:
                data = store.read(f"{part.path}/{entry.name}")
                merge_into(staged, from_table(pq.read_table(io.BytesIO(data))))
        below = [e for p, es in world.log.items() for e in es[: record.target[p]] if e is not None]
        assert staged == recount(e for e in below if e.segment_ms == record.start_ms)

    assert world.end("r1", signal.SIGTERM) == 0
    world.start("r1")
    for receiver in ("r0", "r1"):
        assert world.ask(receiver, world.ends())[0] == world.expected(world.ends())


def test_refused_records_are_kept_with_their_origin(world: World) -> None:
    world.assign(dict.fromkeys(range(PARTITIONS), 0))
    world.start("r0")
    world.produce(400)
    world.ask("r0", world.ends())
    with world.client("r0") as client:
        client.action("checkpoint", {"cube": world.cube})
    malformed = {
        f"{world.cube}/{p}/{at}" for p, es in world.log.items() for at, e in enumerate(es) if e is None
    }
    assert malformed
    state = world.state("r0")
    assert state is not None
    assert sum(sum(p.rejected.values()) for p in state.partitions) == len(malformed)
    consumer = KafkaConsumer(world.kafka, world.schema.table.dead_letter_topic)
    try:
        consumer.assign(dict.fromkeys(consumer.partitions(), 0))
        count = 0

        def all_there() -> bool:
            nonlocal count
            count += len(consumer.poll(1000, 1.0))
            return count >= len(malformed)

        wait_for("the dead letters are readable", all_there)
        assert count == len(malformed)
    finally:
        consumer.close()


def test_a_wrong_token_is_refused(world: World) -> None:
    world.assign(dict.fromkeys(range(PARTITIONS), 0))
    world.start("r0")
    with world.client("r0", "another") as client, pytest.raises(Unauthorized):
        client.stats()


def test_offsets_gone_by_retention_are_a_visible_failure(world: World) -> None:
    world.produce(300)
    admin = KafkaAdmin(world.kafka)
    try:
        admin.delete_records(world.cube, world.ends())
    finally:
        admin.close()
    world.assign(dict.fromkeys(range(PARTITIONS), 0))
    world.start("r0")
    wait_for("FAILED", lambda: (s := world.state("r0")) is not None and s.state == "FAILED")
    state = world.state("r0")
    assert state is not None
    assert "no longer holds offset 0" in state.reason


def test_a_pause_is_visible_and_ends(world: World) -> None:
    world.assign(dict.fromkeys(range(PARTITIONS), 0))
    world.start("r0")
    with world.client("r0") as client:
        client.action("pause", {"cube": world.cube})
        wait_for("PAUSED", lambda: (s := world.state("r0")) is not None and s.state == "PAUSED")
        client.action("resume", {"cube": world.cube})
    world.produce(50)
    assert world.ask("r0", world.ends())[0] == world.expected(world.ends())
