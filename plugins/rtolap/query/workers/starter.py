"""The service's side of the fork server: starts it, again when it ended, and requests workers from it."""

from __future__ import annotations

import logging
import os
import select
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

import msgspec

from rtolap.base.closeable import Closeable
from rtolap.base.decoding import decode_json
from rtolap.base.errors import Unavailable
from rtolap.base.logs import handed_over
from rtolap.query.workers.fork_server import Ended
from rtolap.query.workers.process import WorkerOptions

log = logging.getLogger(__name__)

_STATUS_S = 1.0  # within which the end of a process is reported, or stays unknown
_ENDED_MAX = 256
_END_S = 10.0
_INHERITED = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "ACERO_ALIGNMENT_HANDLING",
)  # of our environment; no secrets
_THREADLESS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


class Starter(Closeable):
    """A starter of workers. It is thread-safe. Workers live on when the fork server ends; the next one to be
    started has a new server."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._lock = threading.RLock()  # a result may be collected, and give its worker back, anywhere
        self._closed = False
        self._server: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._ended: dict[int, int] = {}
        self._number = 0

    @property
    def pid(self) -> int | None:
        """Return the process id of the fork server; None where none runs."""
        with self._lock:
            return None if self._server is None or self._is_gone() else self._server.pid

    def has_ended(self, number: int) -> bool:
        """Return True if the fork server of this number takes no requests any more."""
        with self._lock:
            return number != self._number or self._is_gone()

    def _is_gone(self) -> bool:
        """Return True if no fork server holds the other end.

        The system hangs up before it closes the requests that the server has not read. So the end of a
        worker that was never born is not seen before that of its server.
        """
        if self._socket is None:
            return True
        poll = select.poll()
        poll.register(self._socket, 0)
        return bool(poll.poll(0))

    def start(self) -> tuple[socket.socket, socket.socket, int]:
        """Return data and control of a new worker, which says Hello when it is ready, and the number of its
        fork server.

        Raises Unavailable where the system has no more processes or descriptors.
        """
        try:
            with self._lock:
                if self._closed:
                    raise Unavailable("the service is being stopped")
                while self._hear(0):
                    """Nobody asked for the end of those that were killed on purpose."""
                return self._started()
        except OSError as error:
            raise Unavailable("no worker can be started", found=str(error), action="ask later") from error

    def _started(self) -> tuple[socket.socket, socket.socket, int]:
        data, data_of_worker = socket.socketpair()
        control, control_of_worker = socket.socketpair()
        with data_of_worker, control_of_worker:
            descriptors = [data_of_worker.fileno(), control_of_worker.fileno()]
            for is_again in (False, True):
                try:
                    if self._socket is not None and self._is_gone():
                        log.warning("the fork server of the workers has ended, another is started")
                        self._drop_server()
                    if self._socket is None:
                        self._start_server()
                    assert self._socket is not None
                    socket.send_fds(self._socket, [b"one more"], descriptors)
                    return data, control, self._number
                except OSError as error:
                    self._drop_server()
                    if is_again:
                        data.close()
                        control.close()
                        raise
                    log.warning("the fork server of the workers is gone, another is started: %s", error)
        raise AssertionError("unreachable")

    def _start_server(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._server = subprocess.Popen(
                    [
                        *(sys.executable, "-P", "-m", "rtolap.query.workers.fork_server"),
                        *(str(theirs.fileno()), msgspec.json.encode(self._options).decode()),
                    ],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                    env={
                        **{name: os.environ[name] for name in _INHERITED if name in os.environ},
                        **_THREADLESS,
                        **handed_over(),
                        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    },
                )
            except BaseException:
                ours.close()
                raise
        self._socket = ours
        self._number += 1

    def _drop_server(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._server is not None:
            with suppress(subprocess.TimeoutExpired):
                self._server.wait(_END_S)
            if self._server.poll() is None:
                self._server.kill()
                self._server.wait()
            self._server = None

    def status_of(self, pid: int) -> int | None:
        """Return how a worker that is gone ended, as a process's return code; None if it is not known."""
        until_s = time.monotonic() + _STATUS_S
        with self._lock:
            while pid not in self._ended and self._hear(max(0.01, until_s - time.monotonic())):
                """The exit statuses of other children arrive here, too."""
            return self._ended.pop(pid, None)

    def _hear(self, timeout_s: float) -> bool:
        """Receive the end of one more worker; return True if there was one. 0 s: only what is there
        already."""
        if self._socket is None:
            return False
        self._socket.settimeout(timeout_s)
        try:
            message = self._socket.recv(4096)
        except OSError:
            return False
        finally:
            self._socket.settimeout(None)
        if not message:
            return False
        ended = decode_json(message, Ended)
        self._ended[ended.pid] = ended.status
        while len(self._ended) > _ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        return True

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._drop_server()
