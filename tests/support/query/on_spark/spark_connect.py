"""A real Spark Connect service of a test's own, run as `rtolap spark serve` runs it."""

from __future__ import annotations

import secrets
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
from rtolap.query.spark.connections import Connection
from rtolap.query.spark.errors import ERRORS
from rtolap.query.spark.service import SparkService
from rtolap.stack.java import spark_submit_options
from rtolap.stack.ports import free_port
from rtolap.stack.probes import http2_missing
from rtolap.stack.servers.spark import ADDRESS, connect_program

from tests.support.waiting import until

MEMORY_MB = 600
START_S = 120.0
_SLEEPERS, _SLEEP_MS = "sleepers", 600_000


class SparkServer:
    """Attributes:
    service: its address and token.
    """

    def __init__(self, folder: Path, master: str = "local[2]", memory_mb: int = MEMORY_MB) -> None:
        self._folder = folder
        self._master = master
        self._memory_mb = memory_mb
        self._token = secrets.token_hex(16)
        self.port = free_port()
        self.service = SparkService(f"sc://localhost:{self.port}", self._token)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = connect_program(
            self._folder,
            master=self._master,
            port=self.port,
            token=self._token,
            memory_mb=self._memory_mb,
            spark_host=ADDRESS,
        )
        # of the executors of a local cluster, too, which have the class path of the driver
        flags = {"JDK_JAVA_OPTIONS": spark_submit_options()}
        with (self._folder / "spark.log").open("ab") as log:
            process = self.process = subprocess.Popen(
                program.argv,
                env={**program.environment, **flags},
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )

        def answers() -> bool:
            assert process.poll() is None, (self._folder / "spark.log").read_text()[-3000:]
            return http2_missing(ADDRESS, self.port) is None

        until(answers, "Spark Connect", timeout_s=START_S, poll_s=0.2)

    def executors(self) -> list[psutil.Process]:
        """Return the processes of a local cluster in which tasks run."""
        assert self.process is not None
        children = psutil.Process(self.process.pid).children(recursive=True)
        return [each for each in children if "CoarseGrainedExecutorBackend" in _command(each)]

    def kill(self) -> None:
        """End it and its executors as a crash does."""
        assert self.process is not None
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for child in children:
            child.kill()

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()


def _command(process: psutil.Process) -> str:
    """Return the command line; empty if it has ended."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


@contextmanager
def spark_server(folder: Path, master: str = "local[2]", memory_mb: int = MEMORY_MB) -> Iterator[SparkServer]:
    """Yield a service that answers; it is stopped at the end."""
    server = SparkServer(folder, master, memory_mb)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextmanager
def occupied(server: SparkServer, cores: int = 2) -> Iterator[threading.Thread]:
    """Have tasks sleep on all processors of the service, so that every other task waits until the end.

    Yield the thread that waits for these tasks.
    """
    with closing(Connection.open(server.service)) as connection:
        started = threading.Event()

        def shown(stages: object, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
            if inflight_tasks >= cores:
                started.set()

        def sleep() -> None:
            connection.begin(_SLEEPERS, shown)
            call = f"java_method('java.lang.Thread', 'sleep', id + {_SLEEP_MS}L)"
            frame = connection.session.sql(f"SELECT {call} FROM range(0, {cores}, 1, {cores})")
            with suppress(*ERRORS):
                connection.fetch(frame, 1 << 20)

        thread = threading.Thread(target=sleep, daemon=True)
        thread.start()
        try:
            until(lambda: started.is_set() or not thread.is_alive(), "sleeping tasks", timeout_s=60)
            assert started.is_set()
            yield thread
        finally:
            with suppress(*ERRORS):  # the service may be gone
                connection.interrupt(_SLEEPERS)
            thread.join(60)
