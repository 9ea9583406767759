"""Hands a Spark job to a driver that waits for jobs, and starts one where none waits.

`python warm_launcher.py FOLDER IDLE_S SERVING_JOB VERSION -- SPARK_SUBMIT [OPTION VALUE…] JOB [ARGUMENT…]`,
with the standard library only. To the agent it is the job: it prints what the job prints, ends with its exit
code, and with it the job ends, however that happens.

A driver takes jobs of one command line and one environment alone, one at a time:

    FOLDER/<key>.lock   held by the launcher whose job runs there; another one submits its job by itself
    FOLDER/<key>.sock   where the driver listens; removed by it
    FOLDER/<key>.log    what it says outside of jobs

Where DRIVERS_MAX of other kinds wait, a job has a driver of its own. A driver ends with the first job that
fails, with a launcher that is gone, and after IDLE_S without one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import TextIO

START_S = 120.0
DRIVERS_MAX = (
    3  # that wait on a host, each with the memory of a build; further jobs have drivers of their own
)
_LOOK_S = 0.05
_TAKEN = b"\6"  # the driver's first word: from now on the job is its own
_END = b"\0"  # what follows is the exit code; no job prints one
_MARKS = "RTOLAP_AGENT_"  # of the process that the agent has started: its drivers are not that process
# Of the job, see `base.ids` and `base.spans`: they go with its arguments, and tell no two drivers apart.
_IDS, _PARENT = "RTOLAP_IDS", "TRACEPARENT"
_RETRY = 4  # the exit code of a job that failed otherwise, see spark_jobs/build_segment.py


def main(arguments: list[str]) -> int:
    """Return the exit code of the job in a driver that waits; a job that is left to one of its own takes this
    process over."""
    folder, idle_s, serving_job, version = arguments[:4]
    command = arguments[5:]
    job = next(place for place, word in enumerate(command) if word.endswith(".py"))
    prefix, rest = command[: job + 1], command[job + 1 :]
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in (_IDS, _PARENT) and not name.startswith(_MARKS)
    }
    path = os.path.join(folder, key_of(prefix, environment, version))
    os.makedirs(folder, mode=0o700, exist_ok=True)
    serving = [*prefix[:-1], serving_job, f"{path}.sock", idle_s, prefix[-1]]
    with open(f"{path}.lock", "w") as lock:
        connection = _driver(lock, path, serving, environment)
        code = None if connection is None else _handed_over(connection, rest)
    if code is None:
        os.execv(command[0], command)
    return code


def _handed_over(connection: socket.socket, arguments: list[str]) -> int | None:
    """Return the exit code of the job; None where the driver has not taken it."""
    with connection:
        return relayed(connection) if taken(connection, arguments) else None


def _driver(lock: TextIO, path: str, serving: list[str], environment: dict[str, str]) -> socket.socket | None:
    """Return the connection to a driver that waits, perhaps a new one; None where there is none to be had."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # one is at work there
        return None
    connection = _connected(path)
    if connection is None and _waiting(os.path.dirname(path)) < DRIVERS_MAX:
        connection = _started(path, serving, environment)
    return connection


def key_of(prefix: list[str], environment: dict[str, str], version: str) -> str:
    """Return the name of the driver for a command line without the job's arguments."""
    told = json.dumps([prefix, sorted(environment.items()), version])
    return hashlib.sha256(told.encode()).hexdigest()[:24]


def taken(connection: socket.socket, arguments: list[str]) -> bool:
    """Send the job's arguments and ids. Return False where the driver has gone before it took them: it may
    have waited long enough at just this moment."""
    try:
        of_job = {"ids": os.environ.get(_IDS, ""), "parent": os.environ.get(_PARENT, "")}
        request = {"arguments": arguments, **of_job}
        connection.sendall(json.dumps(request).encode() + b"\n")
        return connection.recv(1) == _TAKEN
    except ConnectionError:
        return False


def relayed(connection: socket.socket) -> int:
    """Print what the job prints, and return its exit code."""
    while data := connection.recv(1 << 16):
        output, end, code = data.partition(_END)
        sys.stdout.buffer.write(output)
        sys.stdout.buffer.flush()
        if end:
            while more := connection.recv(64):
                code += more
            return int(code)
    print("the Spark driver ended in the middle of the job", file=sys.stderr, flush=True)
    return _RETRY


def _waiting(folder: str) -> int:
    """Return the number of drivers that listen, and remove what those have left that were killed."""
    found = 0
    for name in os.listdir(folder):
        path, end = os.path.splitext(os.path.join(folder, name))
        if end == ".sock":
            connection = _connected(path)
            if connection is None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{path}.sock")
            else:
                connection.close()
                found += 1
    return found


def _connected(path: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:  # the name of a socket may have 107 bytes
        connection.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}.sock")
    except OSError:
        connection.close()
        return None
    finally:
        os.close(folder)
    return connection


def _started(path: str, serving: list[str], environment: dict[str, str]) -> socket.socket | None:
    """Start a driver, and return the connection to it; None where it does not come up."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{path}.sock")  # of one that was killed
    with open(f"{path}.log", "wb") as log:
        driver = subprocess.Popen(
            serving,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            close_fds=True,
        )
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s and driver.poll() is None:
        connection = _connected(path)
        if connection is not None:
            return connection
        time.sleep(_LOOK_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
