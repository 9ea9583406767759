"""A loader under the real scheduler: its DAG, the agent, Kafka, a Stream Load door; and what waits for it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rtolap.model.stored_table import StoredColumn, StoredTable
from rtolap.stack.environment import HOST
from rtolap.stack.ports import free_port
from rtolap.testing.airflow_stack import AirflowStack
from rtolap.testing.load_door import PASSWORD, USER, LoadDoor, load_door
from rtolap.testing.scrape import scrape

pytestmark = pytest.mark.integration

DAG_ID = "rtolap_loaders"
PARTITIONS = 2


@dataclass
class World:
    """One loader that is declared for Airflow; its table is at a door of this process."""

    airflow: AirflowStack
    door: LoadDoor
    kafka: str
    name: str
    application: str
    port: int
    sent: int = 0

    @property
    def key(self) -> str:
        return f"loader.{self.name}"

    @property
    def ends(self) -> dict[str, int]:
        """Partition → end of the topic, as parameters of a run have them."""
        return {str(part): len(range(part, self.sent, PARTITIONS)) for part in range(PARTITIONS)}

    def send(self, rows: int) -> None:
        producer = Producer({"bootstrap.servers": self.kafka})
        for number in range(self.sent, self.sent + rows):
            value = json.dumps({"id": number, "host": f"h{number % 7}"}).encode()
            producer.produce(self.name, value, partition=number % PARTITIONS)
        assert producer.flush(30) == 0
        self.sent += rows

    def rows(self) -> list[int]:
        return sorted(row["id"] for row in self.door.rows("web", self.name))

    def all_loaded(self) -> bool | None:
        return True if self.rows() == list(range(self.sent)) else None

    def task(self) -> dict[str, Any] | None:
        found = self.airflow.tasks(DAG_ID, task_id="loader")
        return found[-1] if found and found[-1]["state"] == "deferred" else None

    def clear(self) -> None:
        task = self.airflow.until("deferred loader", self.task)
        self.airflow.clear(DAG_ID, task["dag_run_id"], ("loader", task["map_index"]))


@pytest.fixture(scope="module")
def world(
    airflow: AirflowStack, airflow_home: Path, kafka: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    name = f"hits_{uuid.uuid4().hex[:6]}"
    folder = tmp_path_factory.mktemp("loader")
    new = NewTopic(name, num_partitions=PARTITIONS, replication_factor=1)
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([new], operation_timeout=20)[name].result(30)
    columns = (StoredColumn("id", "int", nullable=False), StoredColumn("host", "string"))
    (folder / "password").write_text(PASSWORD)
    with load_door(folder / "door") as door:
        door.assembly.catalogue.create_table(
            StoredTable(database="web", name=name, columns=columns, keys=("id",))
        )
        sink = {"urls": [door.url], "user": USER, "password_file": str(folder / "password"), "format": "json"}
        loader = {
            "kind": "loader",
            "name": name,
            "topic": name,
            "database": "web",
            "table": name,
            "batch": {"interval_ms": 300},
            "sink": sink,
        }
        (folder / "loader.yaml").write_text(json.dumps(loader))
        created = airflow.command("rtolap", "loader", "create", str(folder / "loader.yaml"))
        assert created.returncode == 0, created.stderr
        application = f"web_{uuid.uuid4().hex[:6]}"
        rule = {"host_precise": {"delayed_hosts_ppm": 0}}
        source = {"name": "web", "rule": rule, "hosts": {"registry": {"lease_ms": 3_600_000}}}
        airflow.coordinator.create_application(
            {"name": application, "sources": [source], "sinks": [{"name": "s"}], "edges": [["web", "s"]]}
        )
        one = World(airflow, door, kafka, name, application, free_port())
        complete = {"application": application, "unit": "day"}
        declared = [{"name": name, "port": one.port, "complete": complete}]
        (airflow_home / "include" / "loaders.yaml").write_text(json.dumps(declared))
        airflow.unpause(DAG_ID)
        airflow.until_running(one.key)
        airflow.until("deferred loader", one.task)
        yield one
        airflow.pause(DAG_ID)


def test_a_declared_loader_runs_and_sensors_wait_for_what_it_has_loaded(world: World) -> None:
    airflow = world.airflow
    world.send(100)
    until = datetime.now(UTC).isoformat()
    run = airflow.trigger("it_loaded", loader=world.name, offsets=world.ends, until=until)
    for task_id in ("offsets", "instant"):
        ended = airflow.until_task("it_loaded", run, "success", "failed", task_id=task_id)
        assert ended["state"] == "success", airflow.log(ended)
        assert airflow.result(ended)["loaded"] == world.ends
    assert world.rows() == list(range(100))

    late = airflow.until_task("it_loaded", run, "success", "failed", task_id="never")
    assert late["state"] == "failed"
    said = airflow.log(late)
    assert f"waited 3 s in vain: loader {world.name} is RUNNING; partition 0 is loaded up to " in said
    assert " of 1000000" in said

    shown = scrape(f"http://{HOST}:{world.port}", airflow.token)
    assert shown("rtolap_loader_rows_loaded_total") == 100


def test_clearing_restarts_a_loader_and_nothing_is_loaded_twice(world: World) -> None:
    airflow = world.airflow
    before = airflow.agent.get(world.key)
    world.clear()
    world.send(60)
    after = airflow.until_running(world.key, before.generation + 1)
    assert after.pid != before.pid
    airflow.until("every row once", world.all_loaded)


def test_a_loader_that_was_stopped_by_command_stays_so_until_its_task_is_cleared(world: World) -> None:
    airflow = world.airflow
    generation = airflow.agent.get(world.key).generation
    stopped = airflow.command("rtolap", "loader", "stop", world.name)
    assert stopped.returncode == 0, stopped.stderr
    airflow.until_process(world.key, "SUCCEEDED")
    world.send(40)
    task = airflow.until("deferred loader", world.task)
    world.clear()
    airflow.until_running(world.key, generation + 1)
    airflow.until("every row once", world.all_loaded)
    assert airflow.until("deferred loader", world.task)["dag_run_id"] == task["dag_run_id"]
