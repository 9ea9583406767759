"""Ten thousand damaged streams: none crashes the consumer, memory stays bounded, and it goes on serving."""

from __future__ import annotations

import asyncio
import logging
import random
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psutil
import pytest
from rtolap.sep.consumer.calls import CallHandler
from rtolap.sep.consumer.connection import Connection
from rtolap.sep.consumer.frame_budget import FrameBudget
from rtolap.sep.consumer.limits import ConsumerSettings, RefusalLog
from rtolap.sep.consumer.metrics import ConsumerMetrics
from rtolap.sep.events.decode import EditDecoder
from rtolap.sep.events.edit_batch import EditBatch

from tests.support.seeds import so_many
from tests.support.sep.replication_client import PREAMBLE, connection_header, replicate, request
from tests.support.sep.wal_calls import random_entries

FRAME_BYTES_MAX = 1 << 16
_TRACED = 300  # at the beginning and at the end: tracing memory takes three times as long
_SAMPLED = 250  # after so many streams the process's memory is looked at
_RESIDENT_GROWTH_BYTES_MAX = 16 << 20


class _Transport(asyncio.Transport):
    """Takes what is written; reading is what the test pushes."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.written = bytearray()
        self.closed = False
        self.paused = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class _Consumer:
    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self.settings = ConsumerSettings(frame_bytes_max=FRAME_BYTES_MAX, bytes_in_flight_max=FRAME_BYTES_MAX)
        self.budget = FrameBudget(FRAME_BYTES_MAX, FRAME_BYTES_MAX)
        self.metrics = ConsumerMetrics()
        self.refusals = RefusalLog()
        self.delivered = 0
        self.handler = CallHandler(
            EditDecoder(), self._deliver, self.metrics, executor, default_timeout_s=60.0
        )
        self.tasks: list[asyncio.Task[None]] = []

    async def _deliver(self, batch: EditBatch, deadline_s: float) -> None:
        self.delivered += batch.num_events

    def opened(self, connection: Connection, address: str) -> None:
        connection.admit()

    def ended(self, connection: Connection) -> None: ...

    def spawn(self, work: Any) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))


def damaged(rng: random.Random, streams: list[bytes]) -> bytes:
    """Return one of the streams, some whole, others cut or with bytes changed, put in or left out."""
    stream = bytearray(rng.choice(streams))
    for _ in range(rng.randrange(4)):
        place = rng.randrange(len(stream))
        kind = rng.randrange(5)
        if kind == 0:
            del stream[place:]
        elif kind == 1:
            stream[place] = rng.randrange(256)
        elif kind == 2:
            stream[place:place] = rng.randbytes(rng.randrange(1, 9))
        elif kind == 3:
            del stream[place : place + rng.randrange(1, 9)]
        else:
            stream = stream[:6] + rng.randbytes(40)
        if not stream:
            break
    return bytes(stream)


async def push(consumer: _Consumer, stream: bytes, rng: random.Random) -> None:
    """Feed a connection as a socket would, in pieces, and break it off."""
    connection, transport = Connection(consumer), _Transport()
    connection.connection_made(transport)
    place = 0
    while place < len(stream) and not transport.closed:
        if transport.paused:
            await asyncio.gather(*consumer.tasks)
            consumer.tasks.clear()
            await asyncio.sleep(0)
            assert transport.closed or not transport.paused
            continue
        buffer = connection.get_buffer(-1)
        piece = stream[place : place + min(len(buffer), rng.choice((1, 7, 1 << 16)))]
        buffer[: len(piece)] = piece
        buffer.release()  # as a transport's is by its next read
        connection.buffer_updated(len(piece))
        place += len(piece)
    await asyncio.gather(*consumer.tasks)
    consumer.tasks.clear()
    connection.connection_lost(None)


class _Memory:
    """What the streams need at most: Python's memory where it is traced, the process's all the time."""

    def __init__(self) -> None:
        self.largest_bytes = 0
        self._process = psutil.Process()
        self._resident_bytes = [self._process.memory_info().rss]

    @property
    def resident_growth_bytes(self) -> int:
        return max(self._resident_bytes) - self._resident_bytes[0]

    def look(self) -> None:
        self._resident_bytes.append(self._process.memory_info().rss)

    @contextmanager
    def traced(self) -> Iterator[None]:
        tracemalloc.start()
        try:
            yield
            self.largest_bytes = max(self.largest_bytes, tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()


@pytest.mark.seeded
def test_ten_thousand_damaged_streams_leave_a_consumer_that_serves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, logger="rtolap")  # a line each, kept in memory

    async def run() -> tuple[_Consumer, _Memory]:
        with ThreadPoolExecutor(1) as executor:
            consumer, rng = _Consumer(executor), random.Random(1)
            hello = PREAMBLE + connection_header()
            whole = hello + replicate(1, random_entries(rng, 3))
            streams = [whole, whole + request(2, "Other", b"p", b"cells"), hello + request(0)]

            async def push_damaged(count: int) -> None:
                for number in range(count):
                    await push(consumer, damaged(rng, streams), rng)
                    assert consumer.budget.taken_bytes == 0
                    if number % _SAMPLED == 0:
                        memory.look()

            memory = _Memory()
            await push_damaged(200)  # what is made once does not count
            memory = _Memory()
            with memory.traced():
                await push_damaged(_TRACED)
            await push_damaged(so_many(10_000) - 2 * _TRACED)
            with memory.traced():
                await push_damaged(_TRACED)
            before = consumer.delivered
            await push(consumer, whole, rng)
            assert consumer.delivered > before
            return consumer, memory

    consumer, memory = asyncio.run(run())
    assert consumer.metrics.open_connections == 0
    assert memory.largest_bytes < 20 * FRAME_BYTES_MAX + (2 << 20)
    assert memory.resident_growth_bytes < _RESIDENT_GROWTH_BYTES_MAX
