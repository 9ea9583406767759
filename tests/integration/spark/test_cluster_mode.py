"""Builds in cluster mode on a real YARN: their drivers run there, and end with the processes that wait."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import psutil
import pytest
from pyspark.find_spark_home import _find_spark_home
from rtolap.agent import cluster_drivers
from rtolap.airflow.operators import build_batch as batch
from rtolap.base.errors import Unavailable
from rtolap.model.build_spec import BuildSpec
from rtolap.model.offsets import PartRange
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import ProcessSpec, ProcessStatus
from rtolap.stack.artifacts import JavaArtifacts
from rtolap.stack.java import LEAN_FLAGS

from tests.integration.spark.yarn_cluster import YarnCluster
from tests.support.agent_harness import running_agent
from tests.support.cubes.built import assert_nothing_else, assert_recount
from tests.support.cubes.staging import Staging, raw_events
from tests.support.waiting import until

pytestmark = pytest.mark.integration

SEED = 20260907
DEADLINE_S = 240.0
PROJECT = Path(__file__).resolve().parents[3]
OPTIONS = (
    *("--master", "yarn", "--deploy-mode", "cluster", "--num-executors", "1"),
    *("--driver-memory", "600m", "--executor-memory", "600m"),
    *("--conf", "spark.sql.shuffle.partitions=2"),
)


WAITING_JOB = """
import sys, time
from pathlib import Path

Path(sys.argv[1]).touch()
time.sleep(90)
"""


@pytest.fixture(scope="module")
def yarn(java: JavaArtifacts) -> Iterator[YarnCluster]:
    folder = Path(tempfile.mkdtemp(prefix="rtolap-yarn-"))
    cluster = YarnCluster(folder, java)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def host(tmp_path: Path, yarn: YarnCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set this host up for the cluster, as its operator does: Hadoop's files and Spark's defaults."""
    spark = tmp_path / "spark"
    spark.mkdir()
    defaults = {
        "spark.yarn.jars": f"local:{_find_spark_home()}/jars/*",
        "spark.yarn.stagingDir": (tmp_path / "staging").as_uri(),
        "spark.yarn.appMasterEnv.PYTHONPATH": str(PROJECT / "plugins"),
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": sys.executable,
        # as of drivers on this host: they are over before the optimising compiler has paid for itself
        "spark.driver.extraJavaOptions": " ".join(LEAN_FLAGS),
        "spark.executor.extraJavaOptions": " ".join(LEAN_FLAGS),
        "spark.yarn.scheduler.heartbeat.interval-ms": "200",
        "spark.yarn.report.interval": "200ms",
    }
    (spark / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in defaults.items()))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.conf))
    monkeypatch.setenv("SPARK_CONF_DIR", str(spark))


@pytest.fixture
def agent(tmp_path: Path, host: None, staging: Staging) -> Iterator[AgentClient]:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    shutil.copy(PROJECT / "spark_jobs" / "build_segment.py", jobs)
    (jobs / "waiting.py").write_text(WAITING_JOB)
    with (
        running_agent(
            tmp_path / "agent", jobs_dir=jobs, object_store=staging.uri, spark_master="yarn"
        ) as running,
        running.client() as client,
    ):
        yield client


def submitted(spec: BuildSpec, generation: int, *further: str) -> ProcessSpec:
    return ProcessSpec(
        generation=generation,
        argv=tuple(batch.argv([*OPTIONS, *further], "build_segment.py")),
        one_shot=True,
        stop_grace_s=5.0,
        files={batch.SPECS_FILE: msgspec.json.encode([spec]).decode()},
    )


def waited(agent: AgentClient, condition: Callable[[ProcessStatus], bool]) -> ProcessStatus:
    def details() -> object:
        return agent.get("build"), agent.log("build")[-3000:]

    until(lambda: condition(agent.get("build")), details, timeout_s=DEADLINE_S, poll_s=0.1)
    return agent.get("build")


def staged(staging: Staging, build_id: str) -> BuildSpec:
    raw = raw_events(SEED, 0, 0, 500)
    part = staging.part(1, build_id, raw, PartRange(0, 0, 500))
    return staging.spec(build_id, part, covered={0: 500}, first_offsets={0: 0})


class Waiting:
    """A driver on the cluster that says once that it lives, and does nothing."""

    def __init__(self, agent: AgentClient, yarn: YarnCluster, sign: Path, generation: int) -> None:
        before = set(yarn.applications())
        argv = ("spark-submit", *OPTIONS, "waiting.py", str(sign))
        agent.ensure("build", ProcessSpec(generation=generation, argv=argv, one_shot=True, stop_grace_s=5.0))
        waited(agent, lambda status: sign.exists() or not status.is_live)
        assert sign.exists(), agent.log("build")[-3000:]
        assert living_with(str(sign))
        (self.application,) = set(yarn.applications()) - before
        self._sign = sign

    def wait_dead(self) -> None:
        """Wait until no process of this host has the sign among its arguments: YARN's node kills those of an
        application that is over."""
        until(lambda: not living_with(str(self._sign)), lambda: living_with(str(self._sign)))


def living_with(argument: str) -> list[list[str]]:
    """Return the command lines of processes with this argument."""
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if any(argument in word for word in line)]


def test_a_build_whose_driver_runs_on_the_cluster_equals_a_recount(
    agent: AgentClient, yarn: YarnCluster, staging: Staging
) -> None:
    spec = staged(staging, "b1")
    agent.ensure("build", submitted(spec, 1))
    done = waited(agent, lambda status: not status.is_live)
    assert done.state == "SUCCEEDED", agent.log("build")[-3000:]
    assert "SUCCEEDED" in yarn.applications().values()
    assert_nothing_else(staging, {spec.location: assert_recount(staging, spec, raw_events(SEED, 0, 0, 500))})


def test_a_driver_is_gone_before_its_successor_starts_and_when_its_waiting_process_was_killed(
    agent: AgentClient, yarn: YarnCluster, tmp_path: Path
) -> None:
    """As a task is cleared, the request of the next generation stops the one before; and kill -9."""
    first = Waiting(agent, yarn, tmp_path / "first", 1)
    second = Waiting(agent, yarn, tmp_path / "second", 2)
    assert yarn.applications()[first.application] == "KILLED"
    first.wait_dead()
    pid = agent.get("build").pid
    assert pid is not None
    os.killpg(pid, signal.SIGKILL)
    done = waited(agent, lambda status: not status.is_live)
    assert (done.generation, done.state) == (2, "FAILED")
    assert yarn.applications()[second.application] == "KILLED"
    second.wait_dead()
    assert yarn.living() == []


class PodApi(ThreadingHTTPServer):
    """The part of Kubernetes' API that finds and deletes a pod: its form is that of v1. Not a Kubernetes."""

    def __init__(self, *pods: str) -> None:
        super().__init__(("127.0.0.1", 0), _PodCalls)
        self.pods = set(pods)
        self.calls: list[str] = []

    @property
    def master(self) -> str:
        return f"k8s://http://127.0.0.1:{self.server_address[1]}"


class _PodCalls(BaseHTTPRequestHandler):
    server: PodApi

    def do_GET(self) -> None:
        self._answer(self.path in self.server.pods)

    def do_DELETE(self) -> None:
        known = self.path in self.server.pods
        self.server.pods.discard(self.path)
        self._answer(known)

    def _answer(self, known: bool) -> None:
        self.server.calls.append(f"{self.command} {self.path}")
        self.rfile.read(int(self.headers.get("content-length") or 0))
        *_, namespace, _, name = self.path.split("/")
        labels = {"spark-role": "driver", "spark-app-selector": "spark-1"}
        at = "2026-01-01T00:00:00Z"
        found: dict[str, object] = {
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": labels, "creationTimestamp": at},
            "spec": {"containers": []},
            "status": {"phase": "Running", "startTime": at},
        }
        missing: dict[str, object] = {"kind": "Status", "status": "Failure", "reason": "NotFound"}
        body = json.dumps({"apiVersion": "v1", **(found if known else missing)}).encode()
        self.send_response(200 if known else 404)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing: the test reads `calls`."""


def test_spark_finds_and_deletes_the_pod_of_a_driver_in_its_namespace() -> None:
    """Spark's own client, beside an API that the test plays: no Kubernetes can be had here."""
    pod, other = (f"/api/v1/namespaces/etl/pods/{name}" for name in ("rtolap-1", "rtolap-2"))
    options = ("--deploy-mode", "cluster", "--conf", "spark.kubernetes.namespace=etl")
    with PodApi(pod, other) as api:
        thread = threading.Thread(target=api.serve_forever, daemon=True)
        thread.start()
        submit = str(Path(_find_spark_home()) / "bin" / "spark-submit")
        argv = (submit, "--master", api.master, *options, "job.py")
        asyncio.run(cluster_drivers.kill(argv, "rtolap-1", {"SPARK_LOCAL_IP": "127.0.0.1"}))
        assert api.pods == {other}
        assert [call for call in api.calls if call.startswith("DELETE")] == [f"DELETE {pod}"]
        api.shutdown()
        thread.join()
    with pytest.raises(Unavailable, match="client failed"):  # nobody listens there any more
        asyncio.run(cluster_drivers.kill(argv, "rtolap-2", {"SPARK_LOCAL_IP": "127.0.0.1"}))
