"""A consumer in a thread of its own, for clients that block; what is delivered is kept."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from rtolap.sep.consumer.allowed_addresses import AllowedAddresses
from rtolap.sep.consumer.calls import Answer, EditBounds, SetApart
from rtolap.sep.consumer.limits import ConsumerSettings
from rtolap.sep.consumer.server import ConsumerServer
from rtolap.sep.events.decode import EditDecoder
from rtolap.sep.events.edit_batch import EditBatch

TIMEOUT_S = 60.0
T = TypeVar("T")
Deliver = Callable[[EditBatch, float], Awaitable[None]]


class RunningConsumer:
    """A consumer that runs. `apart` is what was set apart; `batches` is all that was handed to delivery, with
    the seconds left until the deadline.

    While `gate` is cleared, delivery waits; it raises `error` where that is set.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        decoder: EditDecoder,
        allowed: AllowedAddresses,
        answers: Mapping[str, Answer] | None,
        ports: int,
        deliver: Deliver | None = None,
        bounds: EditBounds | None = None,
        set_apart: SetApart | None = None,
    ) -> None:
        self.apart: list[tuple[EditBatch, str]] = []
        self.batches: list[tuple[EditBatch, float]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.allowed = allowed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="consumer")
        self._thread.start()
        self.server: ConsumerServer = self._run(
            self._made(settings, decoder, answers, deliver, bounds, set_apart)
        )
        self.ports: list[int] = self._run(self.server.start("127.0.0.1", [0] * ports))

    @property
    def port(self) -> int:
        return self.ports[0]

    def metric(self, name: str, **labels: str) -> float:
        """Read a sample of the metrics' page by its name without `rtolap_sep_consumer_`."""
        shown = ",".join(f'{label}="{value}"' for label, value in labels.items())
        wanted = f"rtolap_sep_consumer_{name}" + (f"{{{shown}}}" if shown else "")
        for line in self.server.metrics.registry.render()[0].decode().splitlines():
            sample, _, value = line.rpartition(" ")
            if sample == wanted:
                return float(value)
        raise AssertionError(f"no sample {wanted}")

    def call_soon(self, action: Callable[[], object]) -> None:
        """Call on the consumer's event loop."""
        self._loop.call_soon_threadsafe(action)

    def drain(self, timeout_s: float) -> None:
        self._run(self.server.drain(timeout_s))

    def stop(self) -> None:
        self.gate.set()
        self.drain(0.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _made(
        self,
        settings: ConsumerSettings,
        decoder: EditDecoder,
        answers: Mapping[str, Answer] | None,
        deliver: Deliver | None,
        bounds: EditBounds | None,
        set_apart: SetApart | None,
    ) -> ConsumerServer:
        return ConsumerServer(
            decoder,
            deliver or self._deliver,
            allowed=self.allowed,
            settings=settings,
            answers=answers,
            bounds=bounds,
            set_apart=set_apart or self._set_apart,
        )

    async def _set_apart(self, batch: EditBatch, reason: str) -> None:
        self.apart.append((batch, reason))

    async def _deliver(self, batch: EditBatch, deadline_s: float) -> None:
        self.batches.append((batch, deadline_s - time.monotonic()))
        while not self.gate.is_set():
            await asyncio.sleep(0.005)
        if self.error is not None:
            raise self.error

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)


@contextmanager
def running_consumer(
    *,
    settings: ConsumerSettings | None = None,
    decoder: EditDecoder | None = None,
    allowed: Callable[[], list[str]] = lambda: ["127.0.0.1"],
    answers: Mapping[str, Answer] | None = None,
    ports: int = 1,
    deliver: Deliver | None = None,
    bounds: EditBounds | None = None,
    set_apart: SetApart | None = None,
) -> Iterator[RunningConsumer]:
    consumer = RunningConsumer(
        settings or ConsumerSettings(),
        decoder or EditDecoder(),
        AllowedAddresses(allowed, refresh_s=3600),
        answers,
        ports,
        deliver,
        bounds,
        set_apart,
    )
    try:
        yield consumer
    finally:
        consumer.stop()
