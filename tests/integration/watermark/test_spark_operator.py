"""A Spark job as operator of an application: real Spark drivers, Kafka and coordinator."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaProducer
from rtolap.protocols.watermark.messages import LevelWatermark

from tests.support.cubes.services import TOKEN, Services, wait_for
from tests.support.paths import PYTHONPATH
from tests.support.watermarks.definitions import hosts_source

pytestmark = pytest.mark.integration

JOBS: dict[str, Any] = {
    "name": "jobs",
    "sources": [hosts_source("web")],
    "operators": [{"name": "enrich", "unit_lease_ms": 120_000}],
    "sinks": [{"name": "store"}],
    "edges": [["web", "enrich"], ["enrich", "store"]],
}
EVENTS = 50
STEP_MS = 1000
START_TIMEOUT_S = 120.0  # a driver's, on a machine that has other things to do


class World:
    """Batches of events come into one topic; drivers, one after the other, bring them to the other."""

    def __init__(self, folder: Path, services: Services, kafka: str, read: str, write: str) -> None:
        self.folder, self.services, self.kafka = folder, services, kafka
        self.read, self.write = read, write
        self.began_ms = time.time_ns() // 1_000_000 - 3_600_000
        self.produced = 0
        self.drivers: dict[str, subprocess.Popen[bytes]] = {}
        services.coordinator.create_application(JOBS)
        services.coordinator.change_hosts("jobs", "web", "register", ["loader"])

    def produce(self) -> tuple[int, int]:
        """The smallest and the largest event time of the batch."""
        producer = KafkaProducer(self.kafka)
        ids = range(self.produced, self.produced + EVENTS)
        events = [{"id": one, "at": self.began_ms + one * STEP_MS} for one in ids]
        producer.produce(self.read, [OutRecord(json.dumps(one).encode(), partition=0) for one in events])
        producer.flush(30)
        producer.close()
        self.produced += EVENTS
        return events[0]["at"], events[-1]["at"]

    def start(self, name: str) -> None:
        urls = self.services.environment["RTOLAP_COORDINATORS"]
        where = [self.kafka, self.read, self.write, "jobs", urls, TOKEN, str(self.folder), name]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.drivers[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.support.cubes.spark_operator", *where],
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": PYTHONPATH},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def go(self, name: str) -> None:
        (self.folder / f"{name}.go").touch()

    def signal(self, name: str, number: int) -> None:
        """To the driver with its JVM and its workers."""
        os.killpg(self.drivers[name].pid, number)

    def kill(self, name: str) -> None:
        self.signal(name, signal.SIGKILL)
        self.drivers.pop(name).wait(30)

    def end(self, name: str) -> None:
        (self.folder / f"{name}.end").touch()
        assert self.drivers.pop(name).wait(60) == 0, (self.folder / f"{name}.log").read_text()[-2000:]

    def close(self) -> None:
        for name in list(self.drivers):
            self.kill(name)

    def level(self) -> LevelWatermark:
        return self.services.coordinator.application_watermarks("jobs").levels["enrich"]

    def stands(self, input_ms: int, output_ms: int) -> None:
        """The job's level gets there, and is still there a few turns of publishing later."""
        where = (input_ms, output_ms)
        wait_for(f"enrich is at {where}", lambda: self.marks() == where, START_TIMEOUT_S)
        reached_ms = self.level().published_at_ms
        wait_for("more turns", lambda: self.level().published_at_ms > reached_ms + 2000)
        assert self.marks() == where

    def marks(self) -> tuple[int | None, int | None]:
        """None for both until the level is published for the first time."""
        found = self.services.coordinator.application_watermarks("jobs").levels.get("enrich")
        return (None, None) if found is None else (found.input_ms, found.output_ms)

    def written(self) -> set[int]:
        consumer = KafkaConsumer(self.kafka, self.write)
        consumer.assign({0: 0})
        found: set[int] = set()
        while consumer.position()[0] < consumer.log_range(0).end:
            rows = [json.loads(value or b"") for value in consumer.poll(10_000, 0.2).values]
            assert all(row["double"] == 2 * row["id"] for row in rows)
            found |= {row["id"] for row in rows}
        consumer.close()
        return found


@pytest.fixture
def world(
    tmp_path: Path, zookeeper: str, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> Iterator[World]:
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{unique_name}", kafka=kafka, coordinators=1)
    made: World | None = None
    try:
        services.start_coordinators()
        read, write = create_topic(f"{unique_name}_in"), create_topic(f"{unique_name}_out")
        made = World(tmp_path, services, kafka, read, write)
        yield made
    finally:
        if made is not None:
            made.close()
        services.close()


def test_a_driver_that_is_killed_holds_its_level_until_the_next_one_has_done_its_work(world: World) -> None:
    world.start("first")
    world.go("first")
    _, newest_ms = world.produce()
    world.stands(newest_ms, newest_ms)
    (world.folder / "first.go").unlink()
    oldest_ms, newest_ms = world.produce()
    world.stands(newest_ms, oldest_ms)
    world.kill("first")
    world.start("second")
    world.stands(newest_ms, oldest_ms)
    reasons = world.services.coordinator.explain_window("jobs", newest_ms).reasons
    assert any(reason.startswith("enrich: 1 units have older work, job/0") for reason in reasons), reasons
    assert world.written() == set(range(EVENTS)), "what is held is what is missing"
    world.go("second")
    world.stands(newest_ms, newest_ms)
    assert world.written() == set(range(2 * EVENTS))
    world.end("second")
    wait_for("the unit has left", lambda: world.services.coordinator.application("jobs").units == 0)


def test_a_driver_that_was_stopped_and_goes_on_finishes_nothing_of_its_successor(world: World) -> None:
    world.start("first")
    oldest_ms, newest_ms = world.produce()
    world.stands(newest_ms, oldest_ms)
    world.signal("first", signal.SIGSTOP)
    world.start("second")

    def refused() -> int:
        return world.services.coordinator.application("jobs").counters.get("stale_units", 0)

    def output() -> str:
        return (world.folder / "second.log").read_text()

    before = refused()
    wait_for("the second one has taken over", lambda: "taken over" in output(), START_TIMEOUT_S)
    world.go("first")
    world.signal("first", signal.SIGCONT)
    wait_for("the first one has written", lambda: world.written() == set(range(EVENTS)))
    wait_for("and is refused", lambda: refused() > before)
    world.stands(newest_ms, oldest_ms)
    world.go("second")
    world.stands(newest_ms, newest_ms)
