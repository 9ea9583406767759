"""A driver that takes one job after the other, so that each finds Spark started.

It listens on a Unix socket of its own account, in the folder of `agent.warm_launcher`, which says when it
ends. A job has a session of its own: settings and views of the one before are not in it; Spark's context,
with its memory and its executors, is the same. A launcher that is gone ends the job, and the driver with it.
"""

from __future__ import annotations

import contextlib
import io
import os
import resource
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

import msgspec
from pyspark.sql import SparkSession

from rtolap.base.decoding import decode_json
from rtolap.base.ids import bound, received
from rtolap.base.spans import under
from rtolap.cubes.build.session import with_defaults

JOBS_MAX = 100  # of one driver: what leaks goes with it
RESIDENT_BYTES_MAX = 1 << 30  # of Python, at the end of a job
_TAKEN, _END = b"\6", "\0"  # see `agent.warm_launcher`
_REQUEST_BYTES_MAX = 1 << 20
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid of the other side

Job = Callable[[SparkSession, Sequence[str]], int]


def serve(spark: SparkSession, path: Path, idle_s: float, job: Job) -> int:
    """Run jobs until one fails, or none comes for `idle_s`. Returns 0."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        _listen(listener, path)
        listener.settimeout(idle_s)
        try:
            for _ in range(JOBS_MAX):
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    return 0
                with contextlib.closing(connection):
                    if not _served(spark, connection, job) or _resident_bytes() > RESIDENT_BYTES_MAX:
                        return 0
        finally:
            path.unlink(missing_ok=True)
    return 0


def _served(spark: SparkSession, connection: socket.socket, job: Job) -> bool:
    """Run the job of a launcher. Return True where another may follow."""
    connection.settimeout(None)
    if _peer(connection) != os.getuid():
        return True
    request = _request(connection)
    if request is None:
        return True  # it went away before it had asked for anything
    connection.sendall(_TAKEN)
    over = threading.Event()
    threading.Thread(target=_end_with, args=(connection, over), daemon=True).start()
    with connection.makefile("w", encoding="utf-8", errors="replace", buffering=1) as output:
        printed = _Printed(output)
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            bound(received(request.ids)),
            under(request.parent),
        ):
            code = job(with_defaults(spark.newSession()), request.arguments)
        over.set()
        output.write(f"{_END}{code}")
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
    return code == 0


class _Request(msgspec.Struct, frozen=True):
    """A job that a launcher asks for.

    Attributes:
        ids: ids of the job, as `base.ids.sent` writes them.
        parent: the `traceparent` of the span that asks for it; empty where there is none.
    """

    arguments: list[str]
    ids: str = ""
    parent: str = ""


class _Printed(io.TextIOBase):
    """The output of a job, without the character that ends it."""

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def write(self, text: str) -> int:
        self._output.write(text.replace(_END, "\N{REPLACEMENT CHARACTER}"))
        return len(text)

    def flush(self) -> None:
        self._output.flush()


def _listen(listener: socket.socket, path: Path) -> None:
    """Listen under another name first: a socket that is there and does not answer is one of the dead."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:  # the name of a socket may have 107 bytes
        listener.bind(f"/proc/self/fd/{folder}/{new.name}")
    finally:
        os.close(folder)
    new.chmod(0o600)
    listener.listen(1)
    new.rename(path)


def _request(connection: socket.socket) -> _Request | None:
    data = b""
    while not data.endswith(b"\n") and len(data) < _REQUEST_BYTES_MAX:
        more = connection.recv(1 << 16)
        if not more:
            return None
        data += more
    return decode_json(data, _Request)


def _peer(connection: socket.socket) -> int:
    """Return the account of the other side."""
    given = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(given)[1])


def _end_with(connection: socket.socket, over: threading.Event) -> None:
    """Kill this driver, its JVM and its workers, when the launcher goes away before its job is over."""
    with contextlib.suppress(OSError):
        connection.recv(1)
    if not over.is_set():
        os.killpg(0, signal.SIGKILL)


def _resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main(arguments: Sequence[str], spark: SparkSession, jobs: dict[str, Job]) -> int:
    """Serve as the launcher has asked: SOCKET IDLE_S JOB, where the job is the file it would submit."""
    path, idle_s, job = arguments
    name = Path(job).name
    if name not in jobs:
        print(f"no job {name} can be served; expected one of {', '.join(jobs)}", file=sys.stderr)
        return 2
    return serve(spark, Path(path), float(idle_s), jobs[name])
