"""Builds on a standalone Spark cluster, a master and a worker of their own, submitted by a real agent."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from pyspark.find_spark_home import _find_spark_home
from rtolap.airflow.operators import build_batch as batch
from rtolap.base.errors import NotFound
from rtolap.base.settings import Settings
from rtolap.cubes.format import history
from rtolap.model.build_spec import BuildSpec
from rtolap.model.offsets import PartRange
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import ProcessSpec, ProcessStatus
from rtolap.stack.artifacts import JavaArtifacts
from rtolap.stack.java import LEAN_FLAGS
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.spec import ProcessSpec as PartSpec

from tests.support.agent_harness import running_agent
from tests.support.cubes.built import assert_nothing_else, assert_recount
from tests.support.cubes.staging import Staging, raw_events
from tests.support.telemetry.log_lines import json_lines
from tests.support.waiting import patience_s

pytestmark = pytest.mark.integration

SEED = 20260401
HOST = "127.0.0.1"
DEADLINE_S = 150.0
JOBS = Path(__file__).resolve().parents[3] / "spark_jobs"
OPTIONS = (
    *("--driver-memory", "600m", "--executor-memory", "600m"),
    *("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"),
    *("--conf", "spark.rtolap.rowsInMemoryMax=0"),  # files of executors, as of large segments
)


class Standalone:
    """A master and one worker with a core, on loopback."""

    def __init__(self, folder: Path) -> None:
        numbers: list[int] = []
        while len(numbers) < 4:
            numbers.append(free_port(numbers))
        port, self._page, worker_port, worker_page = numbers
        self._work = folder / "work"
        self.url = f"spark://{HOST}:{port}"
        self.master = ManagedProcess(
            self._part(folder, "master", ("--port", str(port), "--webui-port", str(self._page)), workers=0)
        )
        arguments = ("--port", str(worker_port), "--webui-port", str(worker_page), "--cores", "1")
        arguments += ("--memory", "1g", "--work-dir", str(self._work), self.url)
        self.worker = ManagedProcess(self._part(folder, "worker", arguments, workers=1))

    def workers_missing(self, expected: int) -> str | None:
        """None when the master knows that many living workers."""
        try:
            answer = httpx.get(f"http://{HOST}:{self._page}/json/", timeout=2, trust_env=False)
            state = answer.raise_for_status().json()
        except (
            httpx.HTTPError,
            ValueError,
        ) as error:  # another page answers at first
            return f"GET /json/: {error}"
        found = state["aliveworkers"]
        return None if found == expected else f"workers alive: {found}"

    def executor_lines(self) -> list[dict[str, Any]]:
        """Return the lines of the logs of all executors so far that are JSON.

        An executor that its worker ends while it writes leaves half a line at the end of its log.
        """
        texts = [path.read_text() for path in sorted(self._work.glob("app-*/*/stderr"))]
        return [line for text in texts for line in json_lines(text)]

    def _part(self, folder: Path, name: str, arguments: tuple[str, ...], *, workers: int) -> PartSpec:
        home = Path(_find_spark_home())
        kind = f"org.apache.spark.deploy.{name}.{name.capitalize()}"
        return PartSpec(
            name=name,
            folder=folder,
            argv=(str(home / "bin" / "spark-class"), kind, "--host", HOST, *arguments),
            env={
                "SPARK_HOME": str(home),
                "SPARK_LOCAL_IP": HOST,
                "SPARK_DAEMON_MEMORY": "256m",
                "JDK_JAVA_OPTIONS": " ".join(LEAN_FLAGS),  # of the worker's executors, too
            },
            ready=lambda _: self.workers_missing(workers),
        )


@pytest.fixture(scope="module")
def standalone(java: JavaArtifacts) -> Iterator[Standalone]:
    folder = Path(tempfile.mkdtemp(prefix="rtolap-spark-"))
    cluster = Standalone(folder)
    try:
        cluster.master.start()
        cluster.worker.start()
        yield cluster
    finally:
        cluster.worker.stop()
        cluster.master.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def agent(tmp_path: Path, standalone: Standalone, staging: Staging) -> Iterator[AgentClient]:
    """Of a host that is set up with that master."""
    with (
        running_agent(
            tmp_path / "agent", jobs_dir=JOBS, object_store=staging.uri, spark_master=standalone.url
        ) as running,
        running.client() as client,
    ):
        yield client


def submitted(spec: BuildSpec, master: str, generation: int, *further: str) -> ProcessSpec:
    """As the build operator asks an agent for it."""
    options = ["--master", Settings(spark_master=master).spark_master, "--name", "build", *OPTIONS, *further]
    return ProcessSpec(
        generation=generation,
        argv=tuple(batch.argv(options, "build_segment.py")),
        one_shot=True,
        files={batch.SPECS_FILE: msgspec.json.encode([spec]).decode()},
    )


def waited(agent: AgentClient, condition: Callable[[ProcessStatus], bool]) -> ProcessStatus:
    deadline_s = time.monotonic() + patience_s(DEADLINE_S)
    while True:
        status = agent.get("build")
        if condition(status):
            return status
        assert time.monotonic() < deadline_s, (status, agent.log("build")[-3000:])
        time.sleep(0.05)


def staged(staging: Staging, build_id: str) -> BuildSpec:
    raw = raw_events(SEED, 0, 0, 500)
    part = staging.part(1, build_id, raw, PartRange(0, 0, 500))
    return staging.spec(build_id, part, covered={0: 500}, first_offsets={0: 0})


def test_a_build_on_a_standalone_master_equals_a_recount(
    standalone: Standalone, agent: AgentClient, staging: Staging
) -> None:
    spec = staged(staging, "b1")
    as_json = ("--conf", "spark.log.structuredLogging.enabled=true")
    agent.ensure("build", submitted(spec, standalone.url, 1, *as_json))
    done = waited(agent, lambda status: not status.is_live)
    assert done.state == "SUCCEEDED", agent.log("build")[-3000:]
    manifest = assert_recount(staging, spec, raw_events(SEED, 0, 0, 500))
    assert_nothing_else(staging, {spec.location: manifest})
    contexts = [line.get("context", {}) for line in standalone.executor_lines()]
    of_tasks = [each for each in contexts if "task_name" in each]
    known = {"mdc.cube": spec.cube, "mdc.segment": spec.segment, "mdc.build": "b1"}
    assert of_tasks
    assert all(known.items() <= each.items() for each in of_tasks), of_tasks


def test_a_worker_killed_in_mid_build_leaves_no_version_and_a_retry_builds_it(
    standalone: Standalone, agent: AgentClient, staging: Staging
) -> None:
    spec = staged(staging, "b2")
    agent.ensure("build", submitted(spec, standalone.url, 1))
    waited(agent, lambda status: '"event":"cuboid"' in agent.log("build") or not status.is_live)
    standalone.worker.kill()
    waited(agent, lambda _: standalone.workers_missing(0) is None)
    status = agent.get("build")
    assert status.is_live, agent.log("build")[-3000:]  # a driver without workers waits for new ones
    assert staging.store.list(spec.location)
    with pytest.raises(NotFound):
        history.read_manifest(staging.store, spec.location)
    agent.stop("build", 1)
    with pytest.raises(NotFound):
        history.read_manifest(staging.store, spec.location)

    standalone.worker.start()
    of_python = ("--conf", "spark.rtolap.executorsRunPython=true")  # the worker's interpreter has rtolap
    agent.ensure("build", submitted(spec, standalone.url, 2, *of_python))
    done = waited(agent, lambda status: not status.is_live)
    assert done.state == "SUCCEEDED", agent.log("build")[-3000:]
    manifest = assert_recount(staging, spec, raw_events(SEED, 0, 0, 500))
    assert_nothing_else(staging, {spec.location: manifest}, killed=True)
