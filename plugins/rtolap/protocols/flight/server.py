"""The base of every Flight server of the product: its port belongs to a guard, itself it has a Unix socket.

See `base.flight_guard.relay` for what the guard lets through. The socket is in a folder that only this user
can enter; what a process that was killed has left of such folders, the next one removes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import NotRequired, TypedDict, Unpack

import pyarrow.flight as flight

from rtolap.base.flight_guard.limits import FlightLimits
from rtolap.base.flight_guard.relay import FlightRelay
from rtolap.base.http_server import listening_sockets
from rtolap.base.metrics import Metrics
from rtolap.protocols.flight.endpoint import TokenFactory, error_text
from rtolap.protocols.flight.metrics import FlightCalls

SOCKET = "s"
_FOLDERS = "rtolap-flight-"
_PATH_BYTES_MAX = 100  # of a Unix socket: the system takes 107


class ServerOptions(TypedDict):
    """The address and the limits of a Flight server. `metrics` counts its calls, and what is refused."""

    host: str
    port: int
    token: str
    metrics: Metrics
    limits: NotRequired[FlightLimits]


class GuardedFlightServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves as soon as it is made; `port` is the one that it got.

    Raises Unavailable where the port cannot be had.
    """

    def __init__(self, **options: Unpack[ServerOptions]) -> None:
        token, metrics = options["token"], options["metrics"]
        listening = listening_sockets("Flight", options["host"], options["port"])
        self._port: int = listening[0].getsockname()[1]
        with contextlib.ExitStack() as undo:
            for sock in listening:
                undo.callback(sock.close)
            self._folder = _PrivateFolder()
            undo.callback(self._folder.close)
            path = self._folder.path / SOCKET
            super().__init__(
                f"grpc+unix://{path}",
                auth_handler=None,
                middleware={"token": TokenFactory(token), "metrics": FlightCalls(metrics)},
            )
            undo.callback(super().shutdown)
            self._relay = FlightRelay(
                listening,
                str(path),
                token=token,
                limits=options.get("limits", FlightLimits()),
                metrics=metrics,
                error_text=error_text,
            )
            undo.pop_all()

    @property
    def port(self) -> int:
        return self._port

    def shutdown(self) -> None:
        """Take no connection and no call any more, and wait for the calls under way."""
        self._relay.stop_accepting()
        super().shutdown()
        self._relay.close()
        self._folder.close()


class _PrivateFolder:
    """A folder of this user alone, locked as long as this process lives."""

    def __init__(self) -> None:
        parent = Path(tempfile.gettempdir())
        if len(os.fsencode(parent)) + len(_FOLDERS) + 20 > _PATH_BYTES_MAX:
            parent = Path("/tmp")
        _remove_left(parent)
        self.path = Path(tempfile.mkdtemp(prefix=_FOLDERS, dir=parent))
        self._lock: int | None = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def _remove_left(parent: Path) -> None:
    """Folders of processes that live no more. One that is being made, and is not locked yet, is left."""
    for left in parent.glob(f"{_FOLDERS}*"):
        with contextlib.suppress(OSError):
            about = left.lstat()
            if about.st_uid != os.getuid() or not stat.S_ISDIR(about.st_mode) or not (left / SOCKET).exists():
                continue
            lock = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(lock)
