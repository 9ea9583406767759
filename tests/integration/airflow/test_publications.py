"""A publisher under the real scheduler: declared, started, killed, cleared and stopped as a task.

History is made by hand, so that no build has to run: the publisher reads records and files alone.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rtolap.base.pids import pid_lives
from rtolap.protocols.agent.messages import ProcessStatus

from tests.support.airflow_stack import AirflowStack
from tests.support.cubes.day_stream import drop_cube
from tests.support.cubes.staging import CUBE, TABLE
from tests.support.hostile.cluster_store import store_of
from tests.support.publish.published import NAME, PublishedCube

pytestmark = pytest.mark.integration

DAG_ID = "rtolap_publications"
KEY = f"publish.{NAME}"
DEFINITION = """
kind: publication
name: lake_sales
cube: sales_cube
cuboid: [shop, day]
table: olap.sales
catalog:
  kind: sqlite
  address: {folder}/catalog.db
  warehouse: file://{folder}/warehouse
batch: {{every: 500ms}}
"""


@pytest.fixture
def cube(airflow: AirflowStack, tmp_path: Path) -> Iterator[PublishedCube]:
    environment = airflow.environment
    made = PublishedCube(tmp_path, store_of(environment), environment["RTOLAP_OBJECT_STORE"])
    yield made
    airflow.command("rtolap", "publish", "drop", NAME, "--yes", timeout_s=120.0)  # where the test has failed
    drop_cube(airflow.coordinator, TABLE.name, CUBE.name)
    made.close()


def command(airflow: AirflowStack, *words: str) -> str:
    done = airflow.command("rtolap", "publish", *words, timeout_s=120.0)
    assert done.returncode == 0, done.stderr
    return done.stdout


def status(airflow: AirflowStack) -> dict[str, Any]:
    (found,) = json.loads(command(airflow, "status", NAME, "--json"))
    assert isinstance(found, dict)
    return found


def until_published(airflow: AirflowStack) -> None:
    airflow.until(
        "the newest snapshot", lambda: True if status(airflow)["lag_segments"] == 0 else None, 240.0
    )
    command(airflow, "verify", NAME)  # ends with another code where a file is missing or named twice


def until_another(airflow: AirflowStack, before: ProcessStatus) -> ProcessStatus:
    def look() -> ProcessStatus | None:
        found = airflow.agent.get(KEY)
        return found if found.state == "RUNNING" and found.pid not in (None, before.pid) else None

    return airflow.until("another process", look)


def test_a_publisher_runs_as_a_task_through_a_kill_and_a_clear_and_each_version_is_published_once(
    airflow: AirflowStack, cube: PublishedCube, tmp_path: Path
) -> None:
    cube.promote(1)
    definition = tmp_path / "lake.yaml"
    definition.write_text(DEFINITION.format(folder=tmp_path))
    command(airflow, "create", str(definition))
    (Path(airflow.environment["RTOLAP_INCLUDE_DIR"]) / "publications.yaml").write_text(f"[{{name: {NAME}}}]")
    airflow.unpause(DAG_ID)
    first = airflow.until_running(KEY)
    until_published(airflow)

    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    cube.promote(2)
    cube.promote(1)  # another version of a segment that is published
    second = until_another(airflow, first)
    assert second.generation == first.generation
    until_published(airflow)

    (task,) = airflow.tasks(DAG_ID, task_id="publisher")
    airflow.clear(DAG_ID, task["dag_run_id"], ("publisher", task["map_index"]))
    third = until_another(airflow, second)
    assert third.generation > second.generation
    assert second.pid is not None
    assert not pid_lives(second.pid)
    cube.promote(3)
    until_published(airflow)

    airflow.pause(DAG_ID)
    path = f"/api/v2/dags/{DAG_ID}/dagRuns/{task['dag_run_id']}/taskInstances/publisher/{task['map_index']}"
    airflow.api.patch(path, json={"new_state": "failed"}).raise_for_status()
    airflow.until_process(KEY, "STOPPED")
    command(airflow, "drop", NAME, "--yes")
