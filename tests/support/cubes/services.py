"""Our services as real processes on real servers: start, kill -9, start again."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pymysql
from rtolap.base.addresses import host_port
from rtolap.base.errors import Refused, RtolapError
from rtolap.base.users import password_hash
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import BuildSpecMessage
from rtolap.protocols.query.messages import ARROW_STREAM
from rtolap.stack.ports import free_port

from tests.support.paths import PLUGINS
from tests.support.runs import spark_drivers
from tests.support.runs.loopback import LOOPBACK
from tests.support.waiting import patience_s, until

log = logging.getLogger(__name__)

TOKEN = "a-token-for-this-run"
USER, PASSWORD = "ann", "a password"  # who asks by the MySQL protocol
_CONFIGURATION = (
    "spark.ui.enabled=false",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.driver.host=127.0.0.1",
    "spark.sql.shuffle.partitions=2",
)


def wait_for(what: str, condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait until `condition` holds; AssertionError with `what` after the deadline."""
    until(condition, what, timeout_s=timeout_s, poll_s=0.05)


class Services:
    """Named processes with one environment. Every port is free when chosen and kept over restarts."""

    def __init__(
        self,
        folder: Path,
        *,
        zookeeper: str,
        root: str,
        kafka: str,
        coordinators: int = 2,
        token: str = TOKEN,
        host: str = LOOPBACK,
    ) -> None:
        self.folder = folder
        self.host = host
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._arguments: dict[str, tuple[str, ...]] = {}
        self._extra: dict[str, dict[str, str]] = {}
        taken: set[int] = set()
        self._ports: dict[str, int] = {}
        for name in (*(f"coordinator-{n}" for n in range(coordinators)), "query-http", "query-mysql"):
            self._ports[name] = free_port(taken)
            taken.add(self._ports[name])
        urls = [self._url(f"coordinator-{n}") for n in range(coordinators)]
        (folder / "token").write_text(token)
        (folder / "users").write_text(f"{USER}:{password_hash(PASSWORD)}\n")
        self.store = (folder / "store").as_uri()
        self.environment = {
            **os.environ,
            "RTOLAP_HOST": host,
            "RTOLAP_ZOOKEEPER": zookeeper,
            "RTOLAP_ZOOKEEPER_ROOT": root,
            "RTOLAP_SESSION_TIMEOUT_S": "3",
            "RTOLAP_KAFKA": kafka,
            "RTOLAP_OBJECT_STORE": self.store,
            "RTOLAP_DATA_DIR": str(folder / "data"),
            "RTOLAP_TOKEN_FILE": str(folder / "token"),
            "RTOLAP_USERS_FILE": str(folder / "users"),
            "RTOLAP_COORDINATORS": ",".join(urls),
            "RTOLAP_QUERY_HTTP_PORT": str(self._ports["query-http"]),
            "RTOLAP_QUERY_MYSQL_PORT": str(self._ports["query-mysql"]),
            # one of fifty threads of a test may get no time between opening a connection and asking
            "RTOLAP_HTTP_HEAD_TIMEOUT_S": str(patience_s(10.0)),
        }
        self.coordinator = CoordinatorClient(urls, token)
        self._headers = {"Authorization": f"Bearer {token}"}
        self._of_thread = threading.local()
        self._clients: list[httpx.Client] = []

    @property
    def _http(self) -> httpx.Client:
        """A client of each thread's own: of a shared one, a connection that its server closes may be closed
        under the thread that was just given it."""
        client: httpx.Client | None = getattr(self._of_thread, "client", None)
        if client is None:
            client = self._of_thread.client = httpx.Client(headers=self._headers, timeout=patience_s(60))
            self._clients.append(client)
        return client

    def _url(self, name: str) -> str:
        return f"http://{host_port(self.host, self._ports[name])}"

    # -- processes --------------------------------------------------------------------------------------

    def start_coordinators(self) -> None:
        for name, port in self._ports.items():
            if name.startswith("coordinator-"):
                self.start(name, "coordinator", "serve", env={"RTOLAP_COORDINATOR_PORT": str(port)})
        wait_for("a coordinator leads", lambda: self.leading_coordinator() is not None)

    def start_receiver(self, name: str, replica_set: str, *options: str) -> None:
        folder = str(self.folder / "receivers" / name)
        arguments = ("receiver", "serve", "--id", name, "--replica-set", replica_set, "--port", "0")
        self.start(name, *arguments, "--data-dir", folder, *options)

    def start_query(self, *options: str) -> None:
        self.start("query", "query", "serve", *options)
        wait_for("the query service answers", lambda: self._answers(self._url("query-http")))

    def start_further_query(self, name: str, *options: str) -> str:
        """Start another query service of the same cluster; return the URL of its HTTP endpoint."""
        for kind in ("http", "mysql"):
            taken = set(self._ports.values())
            self._ports.setdefault(f"{name}-{kind}", free_port(taken))
        ports = {
            f"RTOLAP_QUERY_{kind.upper()}_PORT": str(self._ports[f"{name}-{kind}"])
            for kind in ("http", "mysql")
        }
        self.start(name, "query", "serve", *options, env=ports)
        wait_for(f"{name} answers", lambda: self._answers(self._url(f"{name}-http")))
        return self._url(f"{name}-http")

    def url(self, query: str) -> str:
        """Return the HTTP address of a query service by its name."""
        return self._url(f"{query}-http")

    @property
    def query_url(self) -> str:
        return self._url("query-http")

    def start(self, name: str, *arguments: str, env: dict[str, str] | None = None) -> None:
        """Start `rtolap` with these arguments."""
        self._arguments[name] = arguments
        self._extra[name] = env or {}
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "rtolap.cli.main", *arguments],
                env={**self.environment, **self._extra[name]},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """Send SIGKILL, and wait until it is gone."""
        process = self._processes.pop(name)
        process.kill()
        process.wait(patience_s(30))

    def stop(self, name: str, within_s: float = 60.0) -> None:
        """Send SIGTERM, and wait until it is gone. Raises subprocess.TimeoutExpired, and kills it."""
        process = self._processes.pop(name)
        process.terminate()
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(patience_s(30))
            raise

    def signal(self, name: str, number: signal.Signals) -> None:
        self._processes[name].send_signal(number)

    def start_again(self, name: str) -> None:
        self.start(name, *self._arguments[name], env=self._extra[name])

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items()}

    def running(self) -> set[str]:
        return {name for name, process in self._processes.items() if process.poll() is None}

    def ended(self) -> list[str]:
        """Return those that ended by themselves."""
        return [name for name, process in self._processes.items() if process.poll() is not None]

    def close(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGKILL)
        for process in self._processes.values():
            process.wait(patience_s(30))
        self.coordinator.close()
        for client in self._clients:
            client.close()

    def _answers(self, url: str) -> bool:
        try:
            return self._http.get(f"{url}/health").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    # -- asking -----------------------------------------------------------------------------------------

    def leading_coordinator(self) -> str | None:
        for name in self._ports:
            if name.startswith("coordinator-"):
                try:
                    if self.coordinator.health(self._url(name)).role == "leader":
                        return name
                except RtolapError as error:
                    log.debug("%s does not lead: %s", name, error)
        return None

    def owning_coordinator(self, application: str) -> str:
        """Return the coordinator that runs the application."""
        url = self.coordinator.application(application).owner
        return next(name for name in self._ports if self._url(name) == url)

    def sql(self, text: str) -> dict[str, Any]:
        """Return the HTTP endpoint's JSON. Raises httpx.HTTPStatusError with the body's message."""
        response = self._http.post(f"{self._url('query-http')}/api/v1/query", json={"sql": text})
        if response.status_code != httpx.codes.OK:
            raise httpx.HTTPStatusError(response.text, request=response.request, response=response)
        answer: dict[str, Any] = response.json()
        return answer

    def arrow(self, text: str, parameters: Sequence[object] = ()) -> pa.Table:
        """Return the HTTP server's Arrow stream, in its own types. Raises as `sql` does."""
        url = f"{self._url('query-http')}/api/v1/query"
        body = {"sql": text, "parameters": list(parameters)}
        response = self._http.post(url, json=body, headers={"Accept": ARROW_STREAM})
        if response.status_code != httpx.codes.OK:
            raise httpx.HTTPStatusError(response.text, request=response.request, response=response)
        return pa.ipc.open_stream(response.content).read_all()

    def mysql(self, name: str = "query") -> pymysql.connections.Connection:
        """Return a connection to the MySQL endpoint of that query service."""
        connection: pymysql.connections.Connection = pymysql.connections.Connection(
            host=self.host,
            port=self._ports[f"{name}-mysql"],
            user=USER,
            password=PASSWORD,
            database="rtolap",
            read_timeout=90,
        )
        return connection

    # -- building ---------------------------------------------------------------------------------------

    def submit(
        self, specs: Iterable[BuildSpecMessage], jobs: Path, *, waiting: bool
    ) -> subprocess.Popen[str]:
        """Start `build_segment.py`, which prints its progress on stdout."""
        text = json.dumps([spec.model_dump(mode="json") for spec in specs])
        return self.submit_job(jobs / "build_segment.py", text, waiting=waiting)

    def submit_job(self, job: Path, specs: str, *, waiting: bool) -> subprocess.Popen[str]:
        """Start a job, with these specifications in a file. `waiting`: by a driver that waits for jobs."""
        path = self.folder / f"specs-{time.monotonic_ns()}.json"
        path.write_text(specs)
        command = [
            str(Path(sys.executable).parent / "spark-submit"),
            *("--master", "local[2]", "--driver-memory", "700m"),
            *(word for item in _CONFIGURATION for word in ("--conf", item)),
            str(job),
            str(path),
        ]
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(PLUGINS),
        }
        folder: Path | None = None
        if waiting:
            command, environment, folder = spark_drivers.handed_over(command, environment)
        with (self.folder / "spark.log").open("ab") as log:
            return subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def build_queue(self, jobs: Path, *, segments_max: int | None = None, kill_at: str | None = None) -> int:
        """Build and promote what waits, in order, `segments_max` of it at most; returns how many.

        `kill_at`: SIGKILL the driver at this event of its progress; AssertionError when it was not killed.
        """
        specs: list[BuildSpecMessage] = []
        for entry in self.coordinator.queue().entries[:segments_max]:
            try:
                specs.append(self.coordinator.start_build(entry.cube, entry.segment))
            except Refused:
                break
        if not specs:
            assert kill_at is None, "nothing could be built, so no driver was killed"
            return 0
        process = self.submit(specs, jobs, waiting=kill_at is None)
        assert process.stdout is not None
        said = deque[str](maxlen=100)
        for line in process.stdout:
            said.append(line)
            if kill_at is not None and f'"{kill_at}"' in line:
                os.killpg(process.pid, signal.SIGKILL)
                break
        code = process.wait(patience_s(300))
        process.stdout.close()
        if kill_at is not None:
            assert code == -signal.SIGKILL, f"the driver ended with {code} before {kill_at!r}"
            return 0
        if code:
            raise AssertionError(f"the job of Spark ended with {code}: {''.join(said)}")
        promoted = 0
        for spec in specs:
            try:
                self.coordinator.promote(spec.cube, spec.segment, spec.build_id)
            except Refused:
                break  # an earlier segment has yet to come: the next round takes it up again
            promoted += 1
        return promoted
