"""A process that has imported everything that a worker needs, and makes workers by forking.

It has one thread, no secrets in its environment, and a session of its own, so no signal of a terminal or
a process group reaches it or its workers. It ends when the service does, and its workers with it.

    argv      the descriptor of a socket of the service, `WorkerOptions` as JSON
    socket    a message of any text with two descriptors, data and control: a new worker for them
              back: Ended, for every worker that ended
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec

from rtolap.base.decoding import decode_json
from rtolap.base.hidden_pandas import hide_pandas
from rtolap.base.logs import write_logs_of_child
from rtolap.query.engine import made_database
from rtolap.query.sql.planner import SqlPlanner
from rtolap.query.workers.process import OUT_OF_MEMORY, WorkerOptions, serve

_MESSAGE_BYTES_MAX = 64


class Ended(msgspec.Struct, frozen=True):
    """A worker process has ended.

    Attributes:
        status: as `os.waitstatus_to_exitcode` returns it; negative for a signal.
    """

    pid: int
    status: int


def main() -> None:
    hide_pandas()
    write_logs_of_child(os.environ)
    service = socket.socket(fileno=int(sys.argv[1]))
    options = decode_json(sys.argv[2], WorkerOptions)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    database = _database()
    SqlPlanner().read(
        "select count(*) from a where b = 1", None
    )  # what it makes once is shared by all workers
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    gc.collect()
    gc.freeze()  # so that collecting in a worker does not copy what all of them share
    workers: set[int] = set()
    while True:
        ready = select.select([service.fileno(), woken], [], [])[0]
        if woken in ready:
            with suppress(BlockingIOError):
                os.read(woken, 4096)
            _reap(workers, service)
        if service.fileno() in ready:
            try:
                message, descriptors, _, _ = socket.recv_fds(service, _MESSAGE_BYTES_MAX, 2)
            except ConnectionError:
                message, descriptors = b"", []
            if not message:
                break
            pid = os.fork()
            if pid == 0:
                _become_worker(descriptors, (service.fileno(), woken, wake), options, database)
            workers.add(pid)
            for descriptor in descriptors:
                os.close(descriptor)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)  # ours, and not waited for: no other process has the number
    os._exit(0)


def _database() -> str:
    """Return a path of the macros' database, which lies in memory that only this process and its workers
    have.
    """
    with tempfile.TemporaryDirectory(prefix="rtolap-engine-") as folder:
        path = Path(folder) / "macros.db"
        made_database(path)
        descriptor = os.memfd_create("macros", 0)
        with open(descriptor, "wb", closefd=False) as memory:
            memory.write(path.read_bytes())
    return f"/proc/self/fd/{descriptor}"


def _become_worker(
    descriptors: list[int], others: tuple[int, ...], options: WorkerOptions, database: str
) -> None:
    """Run a worker in this process. It does not return."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for other in others:
            os.close(other)
        data, control = (socket.socket(fileno=descriptor) for descriptor in descriptors)
        serve(data, control, options, database)
        status = 0
    except (BrokenPipeError, ConnectionError):
        status = 0  # no caller waits for the answer
    except MemoryError:
        status = OUT_OF_MEMORY
    except BaseException:  # noqa: BLE001 - reported, and then this process ends
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _reap(workers: set[int], service: socket.socket) -> None:
    for pid in list(workers):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            workers.discard(pid)
            message = msgspec.json.encode(Ended(pid, os.waitstatus_to_exitcode(status)))
            with suppress(BlockingIOError, ConnectionError):  # it is reported for the log alone
                service.send(message, socket.MSG_DONTWAIT)


if __name__ == "__main__":
    main()
