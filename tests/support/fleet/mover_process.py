"""A mover as its own process, which tests kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

SERVE = ("fleet", "serve", "--look-every-s", "0.3")


class MoverProcess:
    """Use as a context manager."""

    def __init__(self, env: dict[str, str], log: Path) -> None:
        self._env = {**os.environ, **env}
        self._log = log
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> MoverProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)
            self._child.wait(30)

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "rtolap.cli.main", *SERVE],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        assert self._child is not None
        self._child.kill()
        self._child.wait(30)
        self._child = None
