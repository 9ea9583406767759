import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import NotLeader, Unavailable
from rtolap.sep.delivery.delivery import Delivery
from rtolap.sep.delivery.serving import DeliveryThread
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.listeners.callable import CallableListener

from tests.sep.delivery.test_delivery import journal_of
from tests.support.sep.batches import puts
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.waiting import until


@asynccontextmanager
async def served(
    broker: MemoryBroker, process_events: Callable[[EditBatch], None]
) -> AsyncIterator[DeliveryThread]:
    delivery = Delivery(CallableListener(process_events, lanes=2), journal_of(broker), SystemClock())
    thread = DeliveryThread(delivery, SystemClock())
    thread.start()
    try:
        yield thread
    finally:
        await asyncio.to_thread(thread.close)
        delivery.close()


def soon_s() -> float:
    return time.monotonic() + 30


def test_a_call_that_comes_again_while_the_first_works_waits_for_it() -> None:
    events: list[int] = []
    began, go_on = threading.Event(), threading.Event()

    def process(batch: EditBatch) -> None:
        began.set()
        assert go_on.wait(30)
        events.append(batch.num_events)

    async def run() -> None:
        async with served(MemoryBroker(), process) as thread:
            first = asyncio.create_task(thread.deliver(puts("a", [1, 2]), soon_s()))
            await asyncio.to_thread(began.wait, 30)
            again = asyncio.create_task(thread.deliver(puts("a", [1, 2]), soon_s()))
            await asyncio.sleep(0)
            assert not again.done()
            go_on.set()
            await asyncio.gather(first, again)

    asyncio.run(run())
    assert events == [2]


def test_what_went_wrong_reaches_the_caller_and_the_rest_goes_on() -> None:
    def process(batch: EditBatch) -> None:
        if "bad" in batch.events["region"].to_pylist():
            raise ValueError("no")

    async def run() -> None:
        async with served(MemoryBroker(), process) as thread:
            with pytest.raises(Unavailable, match="no"):
                await thread.deliver(puts("bad", [1]), soon_s())
            await thread.deliver(puts("good", [1]), soon_s())

    asyncio.run(run())


def test_after_a_take_over_every_call_is_told_so() -> None:
    broker = MemoryBroker()

    async def run() -> None:
        async with served(broker, lambda batch: None) as thread:
            await thread.deliver(puts("a", [1]), soon_s())
            journal_of(broker).recover()
            for _ in range(2):
                with pytest.raises(NotLeader):
                    await thread.deliver(puts("a", [2]), soon_s())

    asyncio.run(run())


def test_calls_that_wait_are_answered_at_the_end() -> None:
    began, go_on = threading.Event(), threading.Event()

    def process(batch: EditBatch) -> None:
        began.set()
        assert go_on.wait(30)

    async def run() -> None:
        async with served(MemoryBroker(), process) as thread:
            first = asyncio.create_task(thread.deliver(puts("a", [1]), soon_s()))
            await asyncio.to_thread(began.wait, 30)
            waiting = asyncio.create_task(thread.deliver(puts("a", [2]), soon_s()))
            await asyncio.sleep(0)
            closing = asyncio.create_task(asyncio.to_thread(thread.close))
            await asyncio.to_thread(until, lambda: thread._closing, "the beginning of the end")
            go_on.set()
            await first
            with pytest.raises(Unavailable):
                await waiting
            await closing

    asyncio.run(run())
