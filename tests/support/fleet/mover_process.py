"""A mover as its own process, which tests kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
from rtolap.stack.ports import free_port

from tests.support.scrape import Scrape, scrape
from tests.support.waiting import patience_s, result_of

SERVE = ("fleet", "serve", "--look-every-s", "0.3")
METRIC = "rtolap_fleet_mover"


class MoverProcess:
    """Use as a context manager. `options`: further ones of `rtolap fleet serve`."""

    def __init__(self, env: dict[str, str], log: Path, *options: str) -> None:
        self._env = {**os.environ, **env}
        self._log = log
        self._port = free_port()
        self._options = ("--metrics-port", str(self._port), *options)
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> MoverProcess:
        """Start it and wait until it serves: who asks it for something waits only for so long."""
        self.start()
        result_of(self.metrics, httpx.TransportError)
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.send_signal(signal.SIGCONT)
            self._child.send_signal(signal.SIGTERM)
            self._child.wait(patience_s(30))

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "rtolap.cli.main", *SERVE, *self._options],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        assert self._child is not None
        self._child.kill()
        self._child.wait(patience_s(30))
        self._child = None

    def pause(self) -> None:
        """Give it no time until `go_on`."""
        assert self._child is not None
        self._child.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._child is not None
        self._child.send_signal(signal.SIGCONT)

    def metrics(self) -> Scrape:
        token = Path(self._env["RTOLAP_TOKEN_FILE"]).read_text().strip()
        return scrape(f"http://127.0.0.1:{self._port}/metrics", token)
