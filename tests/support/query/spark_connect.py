"""A real Spark Connect service of a test's own, run as `rtolap spark serve` runs it."""

from __future__ import annotations

import secrets
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from rtolap.query.spark_service import SparkService
from rtolap.stack.ports import free_port
from rtolap.stack.probes import http2_missing
from rtolap.stack.servers.spark import ADDRESS, connect_program

from tests.support.waiting import until

MEMORY_MB = 600
START_S = 120.0


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
        with (self._folder / "spark.log").open("ab") as log:
            process = self.process = subprocess.Popen(
                program.argv, env=program.environment, stdout=log, stderr=log, cwd=self._folder
            )

        def answers() -> bool:
            assert process.poll() is None, (self._folder / "spark.log").read_text()[-3000:]
            return http2_missing(ADDRESS, self.port) is None

        until(answers, "Spark Connect", timeout_s=START_S, poll_s=0.2)

    def executors(self) -> list[psutil.Process]:
        """Return the processes of a local cluster in which tasks run."""
        assert self.process is not None
        children = psutil.Process(self.process.pid).children(recursive=True)
        return [each for each in children if "CoarseGrainedExecutorBackend" in " ".join(each.cmdline())]

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


@contextmanager
def spark_server(folder: Path, master: str = "local[2]", memory_mb: int = MEMORY_MB) -> Iterator[SparkServer]:
    """Yield a service that answers; it is stopped at the end."""
    server = SparkServer(folder, master, memory_mb)
    try:
        server.start()
        yield server
    finally:
        server.stop()
