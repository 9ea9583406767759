"""Airflow's own `TriggerRunner`, on a real channel whose other end answers as slowly as a test wants.

The runner and its protocol are Airflow's; what stands in is the process at the other end, which reads the
database for it and, while that is locked, answers nothing. As there, one request is answered after the other.
"""

# mypy: disable-error-code="no-untyped-call"
# (Airflow's trigger runner carries no annotations.)
from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from airflow.executors.workloads.trigger import RunTrigger
from airflow.jobs.triggerer_job_runner import TriggerCommsDecoder, TriggerRunner
from airflow.models.trigger import Trigger
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import _RequestFrame, _ResponseFrame
from airflow.triggers.base import BaseTrigger

Answer = dict[str, Any]


class SlowSupervisor:
    """The other end. `delay_s`: what each answer but those of the runner's own round takes. `stalled`: set
    while nothing is answered at all. `task_states`: (dag, run) → task → state."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._decoder = msgspec.msgpack.Decoder(_RequestFrame)
        self._lock = threading.Lock()
        self._to_create: list[dict[str, Any]] = []
        self._running: set[int] = set()
        self._to_cancel: set[int] = set()
        self.delay_s = 0.0
        self.going = threading.Event()
        self.going.set()
        self._stalls_after_cancel = False
        self.task_states: dict[str, dict[str, str | None]] = {}
        self.asked: list[str] = []
        self.finished: set[int] = set()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def create(self, number: int, trigger: BaseTrigger) -> None:
        """Create a trigger as the supervisor does: once the trigger that had the number before has ended."""
        path, arguments = trigger.serialize()
        workload = RunTrigger(id=number, classpath=path, encrypted_kwargs=Trigger.encrypt_kwargs(arguments))
        with self._lock:
            self._to_create.append(workload.model_dump(mode="json"))

    def cancel(self, number: int) -> None:
        """Cancel a trigger as when somebody has acted on the task: in each round, until the trigger has
        ended."""
        with self._lock:
            self._to_cancel.add(number)

    def cancel_and_stall(self, number: int) -> None:
        """Cancel, and answer nothing from the moment at which the runner has been told."""
        self._stalls_after_cancel = True
        self.cancel(number)

    def close(self) -> None:
        self.going.set()
        self._channel.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                request = self._read()
                if request is None:
                    return
                self.going.wait()
                body = self._answer(request.body or {})
                if self._stalls_after_cancel and body is not None and body.get("to_cancel"):
                    self._stalls_after_cancel = False
                    self.going.clear()
                self._channel.sendall(_ResponseFrame(id=request.id, body=body).as_bytes())
            except OSError:
                return

    def _read(self) -> _RequestFrame | None:
        length = self._exactly(4)
        return (
            None
            if length is None
            else self._decoder.decode(self._exactly(int.from_bytes(length, "big")) or b"")
        )

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            more = self._channel.recv(size - len(data))
            if not more:
                return None
            data += more
        return data

    def _answer(self, message: dict[str, Any]) -> Answer | None:
        kind = message["type"]
        self.asked.append(kind)
        if kind == "TriggerStateChanges":
            with self._lock:
                self.finished |= set(message["finished"] or ())
                self._to_cancel -= self.finished
                self._running -= self.finished
                created = [one for one in self._to_create if one["id"] not in self._running]
                self._to_create = [one for one in self._to_create if one not in created]
                self._running |= {one["id"] for one in created}
                self.finished -= self._running
                return {
                    "type": "TriggerStateSync",
                    "to_create": created,
                    "to_cancel": sorted(self._to_cancel),
                    "events_persisted": None,
                }
        time.sleep(self.delay_s)
        if kind == "GetTaskStates":
            return {"type": "TaskStatesResult", "task_states": self.task_states}
        if kind == "GetConnection":
            return {"type": "ErrorResponse", "error": "CONNECTION_NOT_FOUND", "detail": None}
        return None


class _Runner(TriggerRunner):
    def __init__(self, channel: socket.socket) -> None:
        super().__init__()
        self._channel = channel

    async def init_comms(self) -> None:
        reader, writer = await asyncio.open_connection(sock=self._channel)
        self.comms_decoder = TriggerCommsDecoder(
            socket=self._channel, async_writer=writer, async_reader=reader
        )
        task_runner.SUPERVISOR_COMMS = self.comms_decoder  # type: ignore[assignment]
        await self.comms_decoder.start_reader()


@contextmanager
def running_triggers(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SlowSupervisor, Callable[[], float]]]:
    """Yield the supervisor, and how long the runner's loop has stood still at most, in seconds."""
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", None, raising=False)
    ours, theirs = socket.socketpair()
    supervisor = SlowSupervisor(theirs)
    runner = _Runner(ours)
    longest_s = 0.0

    async def watched() -> None:
        async def beat() -> None:
            nonlocal longest_s
            while True:
                before_s = time.monotonic()
                await asyncio.sleep(0.02)
                longest_s = max(longest_s, time.monotonic() - before_s)

        beating = asyncio.create_task(beat())
        try:
            await runner.arun()
        finally:
            beating.cancel()

    thread = threading.Thread(target=lambda: asyncio.run(watched()), daemon=True)
    thread.start()
    try:
        yield supervisor, lambda: longest_s
    finally:
        supervisor.going.set()
        runner.stop = True
        thread.join(20)
        supervisor.close()
        assert not thread.is_alive()
