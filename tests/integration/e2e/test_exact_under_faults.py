"""Two replica sets of two, two coordinators, real Kafka, ZooKeeper and Spark; everything is killed in turn.

Queries are asked all the time. Each names the prefix of every partition that it holds, and must equal the
plain recount of that prefix; prefixes never get shorter. At the end history equals the recount of everything.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from rtolap.base.errors import RtolapError
from rtolap.model.cube import AggregationGroup, LatePolicy, Schema
from rtolap.model.segment import segment_of
from rtolap.stack.process import ManagedProcess
from rtolap.stream.consumer import OutRecord
from rtolap.stream.kafka_out import KafkaProducer
from rtolap.testing.builders import START_MS, WINDOW_MS, Event, random_event, small_schema
from rtolap.testing.recount import Answer, recount
from rtolap.testing.services import Services, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.e2e, pytest.mark.timeout(900)]

JOBS = Path(__file__).resolve().parents[3] / "spark_jobs"
PARTITIONS = 4
SETS = {"left": ("l0", "l1"), "right": ("r0", "r1")}
STEP_MS = 400
FAULTS = ("receiver", "coordinator", "kafka", "zookeeper", "spark")


class Asker(threading.Thread):
    """Asks over and over, keeps every answer, and errors: those are allowed, a wrong answer is not."""

    def __init__(self, world: World) -> None:
        super().__init__(daemon=True)
        self.answers: list[tuple[dict[int, int], Answer]] = []
        self.errors: list[str] = []
        self._world = world
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(0.2):
            try:
                self.answers.append(self._world.ask())
            except httpx.HTTPError as error:
                self.errors.append(str(error))

    def stop(self) -> None:
        self._stopping.set()
        self.join(90)
        assert not self.is_alive(), "a query hangs"


class World:
    def __init__(self, services: Services, kafka: str, name: str, seed: int) -> None:
        schema = small_schema(name=name)
        table = msgspec.structs.replace(schema.table, name=f"{name}_table", topic=name)
        cube = msgspec.structs.replace(
            schema.cube,
            table=table.name,
            aggregation_groups=(AggregationGroup(("kind", "place")),),
            late=LatePolicy(merge_after_ms=3_000),
        )
        self.schema = Schema(table, cube)
        self.cube = name
        self.services = services
        self.random = random.Random(seed)
        self.log: dict[int, list[Event | None]] = {p: [] for p in range(PARTITIONS)}
        self.clock_ms = START_MS
        self._producer = KafkaProducer(kafka, client_id="test")
        self._sql = (
            "SELECT kind, place, COUNT(*), SUM(amount), COUNT(amount), MIN(amount), MAX(amount), SUM(price) "
            f"FROM {name} GROUP BY kind, place"
        )

    def declare(self) -> None:
        client = self.services.coordinator
        for name, receivers in SETS.items():
            client.put_replica_set(name, receivers)
        client.create_table(msgspec.to_builtins(self.schema.table))
        client.create_cube(msgspec.to_builtins(self.schema.cube))
        wait_for("the receivers live", lambda: len(client.receivers()) == 4)
        client.enable_cube(self.cube)

    def produce(self, count: int) -> None:
        for _ in range(count):
            self.clock_ms += STEP_MS
            value, event = random_event(self.random, self.clock_ms)
            partition = self.random.randrange(PARTITIONS)
            self._producer.produce(self.cube, [OutRecord(value, partition=partition)])
            self.log[partition].append(event)
        self._producer.flush(60)

    def ask(self) -> tuple[dict[int, int], Answer]:
        body = self.services.sql(self._sql)
        positions = {int(p): offset for p, offset in body["positions"][self.cube].items()}
        return positions, {(row[0], row[1]): tuple(_number(cell) for cell in row[2:]) for row in body["rows"]}

    def expected(self, positions: dict[int, int]) -> Answer:
        return recount(e for p, es in self.log.items() for e in es[: positions.get(p, 0)] if e is not None)

    def ends(self) -> dict[int, int]:
        return {p: len(events) for p, events in self.log.items()}

    def caught_up(self) -> bool:
        try:
            return self.ask()[0] == self.ends()
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        self._producer.close()


def _number(cell: Any) -> Any:
    if cell is None or isinstance(cell, int):
        return cell
    number = Decimal(str(cell))
    return int(number) if number == number.to_integral_value() else number


@pytest.fixture
def world(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    zookeeper: str,
    kafka: str,
    unique_name: str,
    create_topic: Callable[..., str],
) -> Iterator[World]:
    create_topic(unique_name, PARTITIONS)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{unique_name}", kafka=kafka)
    one = World(services, kafka, unique_name, request.getfixturevalue("seed"))
    try:
        services.start_coordinators()
        for replica_set, names in SETS.items():
            for name in names:
                services.start_receiver(
                    name, replica_set, "--checkpoint-interval-s", "2", "--idle-after-s", "2"
                )
        services.start_query()
        one.declare()
        yield one
    finally:
        one.close()
        services.close()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_answer_is_a_recount_of_a_prefix(
    world: World, seed: int, kafka_server: ManagedProcess, zookeeper_server: ManagedProcess
) -> None:
    services, client = world.services, world.services.coordinator
    faults = list(FAULTS)
    random.Random(seed).shuffle(faults)
    world.produce(300)
    wait_for("the first events are visible", world.caught_up, 90)
    asker = Asker(world)
    asker.start()
    for fault in faults:
        world.produce(150)
        match fault:
            case "receiver":
                leader = next(r.receiver_id for r in client.receivers() if r.is_leader)
                services.kill(leader)
                world.produce(100)
                services.start_again(leader)
            case "coordinator":
                leading = services.leading_coordinator()
                assert leading is not None
                services.kill(leading)
                world.produce(100)
                services.start_again(leading)
            case "kafka":
                kafka_server.kill()
                kafka_server.start()
            case "zookeeper":
                zookeeper_server.kill()
                world.produce(50)
                zookeeper_server.start()
            case "spark":
                wait_for("something waits to be built", lambda: bool(client.queue().entries), 90)
                services.build_queue(JOBS, kill_at="cuboid")
                services.build_queue(JOBS)
    wait_for("all events are visible", world.caught_up, 120)
    _all_into_history(world)
    asker.stop()

    assert services.ended() == []
    assert len(asker.answers) > 20, asker.errors[-3:]
    before = dict.fromkeys(range(PARTITIONS), 0)
    for positions, answer in asker.answers:
        assert answer == world.expected(positions), f"seed {seed}, prefix {positions}"
        assert all(positions[p] >= before[p] for p in before), "an answer went backwards"
        before = positions
    positions, answer = world.ask()
    assert positions == world.ends()
    assert answer == world.expected(positions)
    history = sum(segment.events or 0 for segment in client.segments(world.cube))
    assert history == sum(e is not None for events in world.log.values() for e in events)


def _all_into_history(world: World) -> None:
    """Close what is open, build, and go on until nothing of the cube is outside history."""
    services, client = world.services, world.services.coordinator
    total = sum(e is not None for events in world.log.values() for e in events)
    starts = {e.segment_ms for es in world.log.values() for e in es if e is not None}

    def one_round() -> bool:
        try:
            client.close_segment(world.cube, segment_of(max(starts), WINDOW_MS).name)
            services.build_queue(JOBS)
            return sum(s.events or 0 for s in client.segments(world.cube)) == total
        except RtolapError:
            return False

    wait_for("everything is in history", one_round, 300)
