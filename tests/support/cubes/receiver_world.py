"""A cube with receivers of its own, as processes on real servers, and a log of what each record meant."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
from rtolap.base.addresses import host_port
from rtolap.base.clock import SystemClock
from rtolap.base.errors import RtolapError
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaProducer
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.model.cube import Measure, Schema
from rtolap.object_store.store import open_store
from rtolap.protocols.receiver.client import ReceiverClient
from rtolap.protocols.receiver.messages import CubeStats, HistorySnapshot, PartialQuery

from tests.support.cubes.builders import DIMENSIONS, PARTIALS, START_MS, Event, random_event, small_schema
from tests.support.cubes.recount import Answer, from_table, recount
from tests.support.cubes.services import wait_for
from tests.support.hostile.cluster_store import store_of
from tests.support.waiting import patience_s

PARTITIONS = 2
TOKEN = "a-token-of-this-test"
SERVE = "from rtolap.cli.receiver import app; app()"


class ReceiverWorld:
    """A cube on a topic of its own, and the processes that serve it.

    `log[partition][offset]` is the event, None for a record that is to be refused. `table_changes` are
    fields of the table's definition. `measures`: others than those of the small schema.
    """

    def __init__(
        self,
        folder: Path,
        zookeeper: str,
        kafka: str,
        name: str,
        create_topic: Callable[..., str],
        *,
        measures: tuple[Measure, ...] | None = None,
        **table_changes: object,
    ) -> None:
        schema = small_schema(name=name, **({} if measures is None else {"measures": measures}))
        table = msgspec.structs.replace(schema.table, name=name, topic=name, **table_changes)
        self.schema = Schema(table, msgspec.structs.replace(schema.cube, table=name))
        self.cube, self.folder, self.kafka = name, folder, kafka
        create_topic(name, PARTITIONS)
        self.producer = KafkaProducer(kafka, client_id="test")
        self.log: dict[int, list[Event | None]] = {p: [] for p in range(PARTITIONS)}
        self.random = random.Random(7)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.addresses: dict[str, str] = {}  # of those that run, for when ZooKeeper cannot tell
        token_file = folder / "token"
        token_file.write_text(TOKEN)
        self.environment = {
            **os.environ,
            "RTOLAP_ZOOKEEPER": zookeeper,
            "RTOLAP_ZOOKEEPER_ROOT": f"/{name}",
            "RTOLAP_KAFKA": kafka,
            "RTOLAP_OBJECT_STORE": (folder / "store").as_uri(),
            "RTOLAP_TOKEN_FILE": str(token_file),
            "RTOLAP_SESSION_TIMEOUT_S": "3",
        }
        self.zookeeper = store_of(self.environment, session_timeout_s=6.0)
        self.metadata = ClusterMetadata(
            self.zookeeper, SystemClock(), open_store((folder / "store").as_uri())
        )
        self.metadata.create_table(table)
        self.metadata.create_cube(self.schema.cube)

    def assign(self, first: dict[int, int] | None = None) -> None:
        """Give all partitions of the log to the replica set; by default from offset 0."""
        partitions = tuple(self.log)
        self.metadata.update_control(
            self.cube,
            lambda control: msgspec.structs.replace(
                control,
                enabled=True,
                assignment={"left": partitions},
                assignment_epoch=control.assignment_epoch + 1,
                first_offsets=dict.fromkeys(partitions, 0) if first is None else first,
            ),
        )

    def start(self, receiver: str) -> None:
        arguments = ["--id", receiver, "--replica-set", "left", "--port", "0"]
        arguments += ["--data-dir", str(self.folder / receiver), "--checkpoint-interval-s", "1"]
        with (self.folder / f"{receiver}.log").open("ab") as log:
            self.processes[receiver] = subprocess.Popen(
                [sys.executable, "-c", SERVE, *arguments],
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        wait_for(f"{receiver} serves", lambda: self.state(receiver) is not None)
        record = self.metadata.receivers()[receiver]
        self.addresses[receiver] = host_port(record.host, record.port)

    def end(self, receiver: str, number: int) -> int:
        process = self.processes.pop(receiver)
        self.addresses.pop(receiver, None)
        process.send_signal(number)
        return process.wait(patience_s(60))

    def close(self) -> None:
        for receiver in list(self.processes):
            self.end(receiver, signal.SIGKILL)
        self.producer.close()
        self.zookeeper.close()

    def produce(self, count: int) -> None:
        for _ in range(count):
            value, event = random_event(self.random, START_MS + len(self.log[0]) * 200)
            self.send(self.random.randrange(len(self.log)), value, event)
        self.producer.flush(30)

    def send(self, partition: int, value: bytes | None, event: Event | None) -> int:
        """Queue one record; the offset that it will stand at."""
        self.producer.produce(self.cube, [OutRecord(value, partition=partition)])
        self.log[partition].append(event)
        return len(self.log[partition]) - 1

    def ends(self) -> dict[int, int]:
        return {p: len(events) for p, events in self.log.items()}

    def client(self, receiver: str, token: str = TOKEN) -> ReceiverClient:
        address = self.addresses.get(receiver)
        if address is None:
            record = self.metadata.receivers()[receiver]
            address = host_port(record.host, record.port)
        return ReceiverClient(address, token)

    def state(self, receiver: str) -> CubeStats | None:
        try:
            with self.client(receiver) as client:
                return next((cube for cube in client.stats().cubes if cube.cube == self.cube), None)
        except (RtolapError, KeyError):
            return None

    def ask(self, receiver: str, at_least: dict[int, int]) -> tuple[Answer, dict[int, int]]:
        query = PartialQuery(self.cube, DIMENSIONS, PARTIALS, HistorySnapshot(), None, at_least, 30_000)
        with self.client(receiver) as client:
            table, said = client.query(query)
        return from_table(table), said.positions

    def exact(self, receiver: str) -> bool:
        """Return True if the receiver's result over everything produced so far equals its recount."""
        answer, positions = self.ask(receiver, self.ends())
        return positions == self.ends() and answer == self.expected(positions)

    def expected(self, positions: dict[int, int]) -> Answer:
        return recount(e for p, es in self.log.items() for e in es[: positions[p]] if e is not None)
