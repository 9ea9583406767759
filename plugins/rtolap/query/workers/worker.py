"""A worker as the service sees it: two sockets, its process, and why it was ended."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from contextlib import suppress
from typing import Any

import pyarrow as pa

from rtolap.base.errors import Corrupted, Unavailable
from rtolap.query.cancel import Cancellation
from rtolap.query.workers import messages
from rtolap.query.workers.messages import WorkerAnswer, WorkerHello, WorkerRequest
from rtolap.query.workers.process import STATM_FIELDS, memory_of

START_S = 60.0  # for a new worker to be ready, with its fork server if that is new too
_LOOK_S = 0.05  # for what ended the statement, while its worker starts


class WorkerGone(Exception):
    """The worker's process has ended."""


class Worker:
    """A worker process. Any thread may kill or interrupt it; only its owner calls the rest.

    Attributes:
        server_number: number of the fork server that has made it.
        catalogue: number of the definitions that it was sent last; 0 for none.
        worked_ns: how long it says it has worked for its newest answer, with what was sent before that.
    """

    def __init__(self, data: socket.socket, control: socket.socket, server_number: int) -> None:
        self.server_number = server_number
        self.catalogue = 0
        self.worked_ns = 0
        self._data = data
        self._control = control
        self._lock = threading.RLock()
        self._process: int | None = None  # a descriptor of it, so that no other process is meant
        self._at_rest = (0, 0)
        self.pid: int | None = None
        self.killed: str | None = None  # why, if it was by us
        self.busy_since_s: float | None = None  # while its session waits for it
        self.idle_since_s = time.monotonic()

    def wait_ready(self, ending: Cancellation) -> None:
        """Wait until the worker is ready. Raises what ended the statement, WorkerGone, or Unavailable where
        it takes too long."""
        until_s = time.monotonic() + START_S
        while self.pid is None:
            ending.check()
            if time.monotonic() > until_s:
                raise Unavailable("no worker became ready", expected=f"one within {START_S:g} s")
            self._data.settimeout(_LOOK_S)
            try:
                if not self._data.recv(1, socket.MSG_PEEK):
                    raise WorkerGone
            except TimeoutError:
                continue
            except OSError as error:
                raise WorkerGone from error
            finally:
                self._data.settimeout(None)
            answer, _, descriptor, _ = self._received()
            if not isinstance(answer, WorkerHello) or descriptor is None:
                raise Corrupted("a worker did not say that it is ready")
            with self._lock:
                self.pid, self._process = answer.pid, descriptor
                self._at_rest = (answer.resident_bytes, answer.data_bytes)

    def send(self, request: WorkerRequest, body: Any = b"", descriptor: int | None = None) -> None:
        try:
            messages.send(self._data, request, body, descriptor)
        except OSError as error:
            raise WorkerGone from error

    def receive(self) -> tuple[WorkerAnswer, pa.Buffer]:
        answer, body, descriptor, self.worked_ns = self._received()
        if descriptor is not None:
            os.close(descriptor)
            raise Corrupted("a worker sent what nobody asked for")
        return answer, body

    def _received(self) -> messages.ReceivedAnswer:
        try:
            received = messages.receive_answer(self._data)
        except OSError as error:
            raise WorkerGone from error
        if received is None:
            raise WorkerGone
        return received

    def interrupt(self, number: int) -> None:
        """Interrupt what its session `number` does, as soon as the engine notices it."""
        with self._lock, suppress(OSError):  # one that does not read has enough of them
            self._control.send(number.to_bytes(8, "little"), socket.MSG_DONTWAIT)

    def kill(self, reason: str) -> None:
        """Kill the worker; the caller that waits for its answer gets WorkerGone. The first reason stays."""
        with self._lock:
            self.killed = self.killed or reason
            if self._process is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._process, signal.SIGKILL)
            with suppress(OSError):  # also one that has not introduced itself yet ends by that
                self._control.shutdown(socket.SHUT_RDWR)
            with suppress(OSError):
                self._data.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the sockets after `kill`. Only the owner of the worker calls it."""
        with self._lock:
            self._data.close()
            self._control.close()
            if self._process is not None:
                os.close(self._process)
                self._process = None

    def private_bytes(self) -> int:
        """Return the memory that it takes beyond what it took at rest; 0 where it is gone, or starts."""
        return self._beyond_rest()[0]

    def retained_bytes(self) -> int:
        """Return the memory that it takes, or has without using it: both are missing from its bound."""
        return max(self._beyond_rest())

    def _beyond_rest(self) -> tuple[int, int]:
        if self.pid is None or self.killed is not None:
            return 0, 0
        try:
            with open(f"/proc/{self.pid}/statm", "rb") as file:
                pages = [int(number) for number in file.read().split()]
        except OSError:
            return 0, 0
        if len(pages) < STATM_FIELDS:
            return 0, 0
        sizes = memory_of(pages)
        return max(0, sizes[0] - self._at_rest[0]), max(0, sizes[1] - self._at_rest[1])
