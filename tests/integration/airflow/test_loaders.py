"""A loader under the real scheduler: its DAG, the agent, Kafka, a front end; and what waits for it.

Its table has a partition for each day; an application, whose one host the tests speak for, says which days
are complete.
"""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic
from rtolap.airflow.outlets.loads import loaded_table
from rtolap.base.errors import Unavailable
from rtolap.model.stored.table import RangePartitions, StoredColumn, StoredTable
from rtolap.protocols.agent.messages import ProcessStatus
from rtolap.protocols.loader.client import LoaderClient
from rtolap.stack.ports import HOST, free_port
from rtolap.watermark_client.client import WatermarkClient

from tests.support.airflow_stack import AirflowStack
from tests.support.kafka_topics import create_topic
from tests.support.scrape import Scrape, scrape
from tests.support.stored.load_endpoint import PASSWORD, USER, LoadEndpoint, load_endpoint
from tests.support.watermarks.definitions import hosts_source

pytestmark = pytest.mark.integration

DAG_ID = "rtolap_loaders"
COMPLETE_DAG_ID = "it_partition_complete"
REPORT = "it_loaded_report"
ASSET = "rtolap_partition_complete"
PARTITIONS = 2
DAY = timedelta(days=1)
FIRST_DAY = datetime(2026, 3, 1, tzinfo=UTC)
SOURCE, WRITER = "web", "h0"


@dataclass
class World:
    """One loader that is declared for Airflow; its table is at an endpoint of this process."""

    airflow: AirflowStack
    endpoint: LoadEndpoint
    kafka: str
    name: str
    application: str
    reports: WatermarkClient
    port: int
    sent: int = 0

    @property
    def key(self) -> str:
        return f"loader.{self.name}"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def ends(self) -> dict[str, int]:
        """Partition → end of the topic, as parameters of a run have them."""
        return {str(part): len(range(part, self.sent, PARTITIONS)) for part in range(PARTITIONS)}

    def send(self, rows: int, at: datetime = FIRST_DAY) -> None:
        producer = Producer({"bootstrap.servers": self.kafka})
        for number in range(self.sent, self.sent + rows):
            value = json.dumps({"id": number, "host": WRITER, "at": at.isoformat()}).encode()
            producer.produce(self.name, value, partition=number % PARTITIONS)
        assert producer.flush(30) == 0
        self.sent += rows

    def rows(self) -> list[int]:
        return sorted(row["id"] for row in self.endpoint.rows("web", self.name))

    def all_loaded(self) -> bool | None:
        return True if self.rows() == list(range(self.sent)) else None

    def all_written_until(self, at: datetime) -> None:
        """The host says so, and the application believes it."""
        at_ms = int(at.timestamp() * 1000)
        self.reports.report_progress(SOURCE, 0, 1, [WRITER], [at_ms])

        def moved() -> bool | None:
            marks = self.airflow.coordinator.application_watermarks(self.application)
            return True if marks.global_ms == at_ms else None

        self.airflow.until(f"watermark at {at}", moved)

    def announced(self) -> list[dict[str, Any]]:
        """Events of this loader's partitions, in their order."""
        found = [event["extra"]["payload"] for event in self.airflow.asset_events(ASSET)]
        return [payload for payload in found if payload["loader"] == self.name]

    def until_announced(self, days: list[datetime]) -> None:
        expected = [self.event(day) for day in days]
        self.airflow.until(f"events of {days}", lambda: self.announced()[len(days) - 1 :] or None)
        assert self.announced() == expected

    def loads_told(self, run_id: str) -> dict[str, list[dict[str, int]]]:
        """Versions in the events of the table's asset of a run, by the task that has sent them."""
        told: dict[str, list[dict[str, int]]] = {}
        events = self.airflow.asset_events(loaded_table("web", self.name).name)
        for event in (event for event in events if event["source_run_id"] == run_id):
            told.setdefault(event["source_task_id"], []).append(event["extra"]["version"])
        return told

    def event(self, day: datetime) -> dict[str, Any]:
        return {
            "loader": self.name,
            "database": "web",
            "table": self.name,
            "partition": f"p{day:%Y%m%d}",
            "start": day.isoformat(),
            "end": (day + DAY).isoformat(),
        }

    def command(self, command: str) -> None:
        """`rtolap loader COMMAND`, as somebody on this host says it."""
        done = self.airflow.command("rtolap", "loader", command, self.name)
        assert done.returncode == 0, done.stderr

    def until_phase(self, phase: str) -> None:
        def look() -> bool | None:
            try:
                return True if client.status().phase == phase else None
            except Unavailable:
                return None  # its process is starting

        with LoaderClient(self.url, self.airflow.token) as client:
            self.airflow.until(phase, look)

    def scrape(self) -> Scrape:
        return scrape(self.url, self.airflow.token)

    def until_looked_at(self, times: int = 2) -> None:
        """The watcher has asked the loader so many times more; what the last but one gave is announced."""

        def looks() -> float:
            return self.scrape()("rtolap_loader_http_requests_total", method="GET", route="/api/v1/loader")

        before = looks()
        self.airflow.until("looks of the watcher", lambda: True if looks() >= before + times else None)

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
    create_topic(kafka, new)
    columns = (
        StoredColumn("id", "int", nullable=False),
        StoredColumn("host", "string"),
        StoredColumn("at", "timestamp", nullable=False),
    )
    (folder / "password").write_text(PASSWORD)
    with load_endpoint(folder / "endpoint") as endpoint:
        endpoint.assembly.catalogue.create_table(
            StoredTable(
                database="web", name=name, columns=columns, keys=("id",), partitions=RangePartitions("at")
            )
        )
        sink = {
            "urls": [endpoint.url],
            "user": USER,
            "password_file": str(folder / "password"),
            "format": "json",
        }
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
        source = hosts_source(SOURCE)
        airflow.coordinator.create_application(
            {"name": application, "sources": [source], "sinks": [{"name": "s"}], "edges": [[SOURCE, "s"]]}
        )
        airflow.coordinator.change_hosts(application, SOURCE, "register", [WRITER])
        url = f"http://{HOST}:{airflow.around.ports['coordinator']}"
        reports = WatermarkClient([url], airflow.token, application, every_s=0.2)
        one = World(airflow, endpoint, kafka, name, application, reports, free_port())
        complete = {"application": application, "unit": "day"}
        declared = [{"name": name, "port": one.port, "complete": complete}]
        (airflow_home / "include" / "loaders.yaml").write_text(json.dumps(declared))
        airflow.unpause(COMPLETE_DAG_ID)  # its watcher starts when the file is parsed again
        airflow.unpause(DAG_ID)
        airflow.until_running(one.key)
        airflow.until("deferred loader", one.task)
        yield one
        (airflow_home / "include" / "loaders.yaml").unlink()
        airflow.end_services(DAG_ID, one.key)
        for dag_id in (COMPLETE_DAG_ID, REPORT):
            airflow.pause(dag_id)
        reports.close()
        airflow.coordinator.drop_application(application)


def test_a_declared_loader_runs_and_sensors_wait_for_what_it_has_loaded(world: World) -> None:
    airflow = world.airflow
    airflow.unpause(REPORT)
    world.until_phase("loading")  # its process runs before it answers
    loaded = world.scrape()("rtolap_loader_rows_loaded_total")
    world.send(100)
    until = datetime.now(UTC).isoformat()
    run = airflow.trigger("it_loaded", loader=world.name, offsets=world.ends, until=until)
    for task_id in ("offsets", "instant"):
        ended = airflow.until_task("it_loaded", run, "success", "failed", task_id=task_id)
        assert ended["state"] == "success", airflow.log(ended)
        assert airflow.result(ended)["loaded"] == world.ends
    assert world.all_loaded()
    assert world.loads_told(run) == {"offsets": [world.ends]}

    late = airflow.until_task("it_loaded", run, "success", "failed", task_id="never")
    assert late["state"] == "failed"
    behind = f"loader {world.name} is RUNNING; partition 0 can be read up to "
    airflow.until_logged(late, f"waited 3 s without success: {behind}", " of 1000000")

    assert world.scrape()("rtolap_loader_rows_loaded_total") == loaded + 100

    def reported() -> bool | None:
        ended = [task for task in airflow.tasks(REPORT) if task["state"] == "success"]
        found = [told for task in ended for told in airflow.result(task)]
        return any((told["loader"], told["version"]) == (world.name, world.ends) for told in found) or None

    airflow.until("run of somebody else's DAG, which the task has started", reported)
    before = airflow.task("it_loaded", run, "offsets")["try_number"]
    airflow.clear("it_loaded", run, "offsets")

    def waited_again() -> bool | None:
        found = airflow.task("it_loaded", run, "offsets")
        return True if (found["state"], found["try_number"]) == ("success", before + 1) else None

    airflow.until("the cleared task has succeeded again", waited_again)
    assert world.loads_told(run) == {"offsets": [world.ends]}


def test_clearing_restarts_a_loader_and_nothing_is_loaded_twice(world: World) -> None:
    airflow = world.airflow
    before = airflow.agent.get(world.key)
    world.clear()
    world.send(60)
    after = airflow.until_running(world.key, before.generation + 1)
    assert after.pid != before.pid
    airflow.until("every row once", world.all_loaded)


def test_a_loader_that_is_killed_beside_the_triggerer_is_one_process_afterwards_and_loads_nothing_twice(
    world: World,
) -> None:
    airflow = world.airflow
    airflow.until("deferred loader", world.task)
    before = airflow.until_process(world.key, "RUNNING")
    assert before.pid is not None
    triggerer = airflow.components["airflow-triggerer"]
    triggerer.kill()
    world.send(50)
    os.kill(before.pid, signal.SIGKILL)
    world.send(50)

    def restarted() -> ProcessStatus | None:
        found = airflow.agent.get(world.key)
        return found if found.state == "RUNNING" and found.pid not in (None, before.pid) else None

    airflow.until("restarted loader", restarted)
    triggerer.start()
    airflow.until("every row once", world.all_loaded, 120.0)
    airflow.until_renewed(world.key)
    after = airflow.agent.get(world.key)
    assert (after.generation, after.state) == (before.generation, "RUNNING")
    assert airflow.started_for(world.key) == [after.pid]
    assert world.all_loaded()


def test_a_loader_that_was_stopped_by_command_stays_so_until_its_task_is_cleared(world: World) -> None:
    airflow = world.airflow
    generation = airflow.agent.get(world.key).generation
    world.until_phase("loading")  # a stop that comes before its process looks at the job is overruled by it
    world.command("stop")
    airflow.until_process(world.key, "SUCCEEDED")
    world.send(40)
    task = airflow.until("deferred loader", world.task)
    world.clear()
    airflow.until_running(world.key, generation + 1)
    airflow.until("every row once", world.all_loaded)
    again = airflow.until("deferred loader", world.task)
    assert again["dag_run_id"] == task["dag_run_id"], airflow.tasks(DAG_ID)


def test_a_partition_is_announced_once_when_the_watermark_has_passed_it_and_its_rows_are_loaded(
    world: World,
) -> None:
    airflow = world.airflow
    day = FIRST_DAY + 3 * DAY
    world.send(20, day)
    world.all_written_until(day + DAY / 2)
    world.until_announced([day - DAY])  # so much is complete at the first look, and no more

    world.command("pause")
    world.until_phase("paused")
    world.send(30, day)
    world.all_written_until(day + 3 * DAY / 2)
    world.until_looked_at()
    assert world.announced() == [world.event(day - DAY)], "the loader is behind"
    world.command("resume")
    world.until_announced([day - DAY, day])
    assert world.all_loaded()

    world.send(10, day + DAY)
    world.all_written_until(day + 5 * DAY / 2)
    world.until_announced([day - DAY, day, day + DAY])

    def seen() -> list[dict[str, Any]] | None:
        tasks = airflow.tasks(COMPLETE_DAG_ID, task_id="partitions")
        if {task["state"] for task in tasks} != {"success"}:
            return None
        found = [one for task in tasks for one in airflow.result(task) if one["loader"] == world.name]
        return found if len(found) >= len(world.announced()) else None

    found = airflow.until("runs for all events", seen)
    assert sorted(found, key=lambda one: one["start"]) == world.announced()
    assert {run["run_type"] for run in airflow.runs(COMPLETE_DAG_ID)} == {"asset_triggered"}
