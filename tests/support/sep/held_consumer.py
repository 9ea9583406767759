r"""A consumer as a process of its own whose listener takes nothing until it is told to, for floods.

    python -m tests.support.sep.held_consumer BYTES_IN_FLIGHT_MAX FRAME_BYTES_MAX FRAME_GRACE_S \\
        CONTENDED_GRACE_S

It prints its port. To each line of its input it answers with one: `state` with the bytes that are taken, the
frames that wait, and the calls that are at work; `go` once the listener takes what comes.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
from rtolap.sep.consumer.limits import ConsumerSettings
from rtolap.sep.events.edit_batch import EditBatch

from tests.support.sep.consumer_harness import running_consumer
from tests.support.waiting import patience_s

_LONG_S = 600.0


class HeldState(NamedTuple):
    taken_bytes: int
    waiting: int
    calls: int


class HeldConsumer:
    def __init__(self, settings: ConsumerSettings) -> None:
        bounds = (
            *(settings.bytes_in_flight_max, settings.frame_bytes_max),
            *(settings.frame_grace_s, settings.contended_grace_s),
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__, *map(str, bounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = int(self._line())

    def state(self) -> HeldState:
        return HeldState(*map(int, self._asked("state").split()))

    def go(self) -> None:
        self._asked("go")

    def close(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=patience_s(30))

    def _asked(self, what: str) -> str:
        assert self.process.stdin is not None
        print(what, file=self.process.stdin, flush=True)
        return self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the consumer has ended"
        return line


@contextmanager
def held_consumer(settings: ConsumerSettings, *, graces: bool = False) -> Iterator[HeldConsumer]:
    """Yield a held consumer. `graces` are those of the settings; without, a sender that a loaded machine
    holds up does not count as standing still."""
    patient = (
        settings
        if graces
        else msgspec.structs.replace(settings, contended_grace_s=_LONG_S, frame_grace_s=_LONG_S)
    )
    consumer = HeldConsumer(patient)
    try:
        yield consumer
    finally:
        consumer.close()


def _serve(
    bytes_in_flight_max: str, frame_bytes_max: str, frame_grace_s: str, contended_grace_s: str
) -> None:
    settings = ConsumerSettings(
        frame_bytes_max=int(frame_bytes_max),
        bytes_in_flight_max=int(bytes_in_flight_max),
        contended_grace_s=float(contended_grace_s),
        frame_grace_s=float(frame_grace_s),
    )
    may_go = asyncio.Event()

    async def deliver(batch: EditBatch, deadline_s: float) -> None:
        await may_go.wait()

    with running_consumer(settings=settings, deliver=deliver) as consumer:
        print(consumer.port, flush=True)
        for line in sys.stdin:
            if line.strip() == "go":
                consumer.call_soon(may_go.set)
                print("gone", flush=True)
            else:
                budget = consumer.server.budget
                print(budget.taken_bytes, budget.waiting, consumer.server.calls, flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
