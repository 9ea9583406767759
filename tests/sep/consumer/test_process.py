"""Processes of a subscription: who leads has the ports, and what it stands on may go away and come back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import SessionLost
from rtolap.metadata.store import Create, Delete, Operation
from rtolap.sep.consumer import process as consumer_process
from rtolap.sep.consumer.allowed_addresses import AllowedAddresses
from rtolap.sep.consumer.process import SubscriptionProcess
from rtolap.sep.consumer.server import ConsumerServer
from rtolap.sep.delivery.delivery import Delivery
from rtolap.sep.delivery.state import read_state
from rtolap.sep.events.decode import EditDecoder
from rtolap.sep.listeners.kafka_topic import KafkaTopicListener
from rtolap.sep.subscriptions.records import SubscriptionPaths

from tests.sep.delivery.test_delivery import journal_of
from tests.support.sep.delivery_runs import encode
from tests.support.sep.replication_client import RegionServer
from tests.support.sep.wal_calls import Cell, Entry
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

PATHS = SubscriptionPaths("orders")


class World:
    """One ZooKeeper and one broker; every process has a session of its own."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.broker.create("changes", 1)
        self.ensemble = MemoryEnsemble()
        self.store = MemoryStore(self.ensemble)
        self.forgotten = 0
        self.store.commit([Create(PATHS.definition, b""), Create(PATHS.rs, b"")])

    def process(self, store: MemoryStore | None = None, bind: str = "127.0.0.1") -> SubscriptionProcess:
        store = store or MemoryStore(self.ensemble)
        return SubscriptionProcess(
            "orders",
            store,
            SystemClock(),
            open_delivery=self._open_delivery,
            make_server=lambda deliver, set_apart, answers: ConsumerServer(
                EditDecoder(), deliver, allowed=AllowedAddresses(lambda: ["127.0.0.1"]), answers=answers
            ),
            cluster_id="5e0bd3a8-0c4d-4d58-9f0e-6d2f5d4f1c11",
            host="localhost",
            bind=bind,
            ports=[0, 0],
            is_wanted=lambda: store.get(PATHS.definition) is not None,
            forget=self._forget,
        )

    def _open_delivery(self, leads: Callable[[], bool]) -> Delivery:
        return Delivery(
            KafkaTopicListener("changes", encode), journal_of(self.broker), SystemClock(), leads=leads
        )

    def _forget(self) -> None:
        self.forgotten += 1

    @property
    def ports(self) -> tuple[str, ...]:
        return self.store.children(PATHS.rs)


class LosingStore(MemoryStore):
    """Its session ends while the first ports are registered."""

    ended = False

    def commit(self, operations: Sequence[Operation]) -> None:
        registers = any(isinstance(each, Create) and each.path.startswith(PATHS.rs) for each in operations)
        if registers and not self.ended:
            self.ended = True
            self.expire()
            raise SessionLost("the session ended before the ports were written")
        super().commit(operations)


@pytest.fixture
def world() -> World:
    return World()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


def test_one_of_two_has_ports_and_the_other_takes_over(world: World) -> None:
    async def run() -> None:
        first, second = world.process(), world.process()
        running = asyncio.create_task(first.run())
        await until(lambda: first.leads)
        standing_by = asyncio.create_task(second.run())
        assert len(world.ports) == 2
        state = read_state(world.store, PATHS.delivery)
        await until(lambda: read_state(world.store, PATHS.delivery) is not None)
        assert state is None or state.delivered == 0
        assert not second.leads
        first.stop()
        await running
        await until(lambda: second.leads)
        assert len(world.ports) == 2
        second.stop()
        await standing_by
        assert world.ports == ()

    asyncio.run(run())
    assert world.forgotten == 0


@pytest.mark.parametrize(
    ("bind", "open_at", "closed_at"),
    [
        ("127.0.0.1", ["127.0.0.1"], ["127.0.0.2"]),
        ("127.0.0.2", ["127.0.0.2"], ["127.0.0.1"]),
        ("0.0.0.0", ["127.0.0.1", "127.0.0.2"], []),
    ],
)
def test_ports_listen_on_the_address_that_is_told_and_on_no_other(
    world: World, bind: str, open_at: list[str], closed_at: list[str]
) -> None:
    def ship(address: str, port: int) -> None:
        with RegionServer(port, address=address) as server:
            header, _ = server.ship(1, [Entry((Cell(b"r"),), 1)])
        assert not header.HasField("exception"), header.exception.stack_trace

    async def run() -> None:
        process = world.process(bind=bind)
        running = asyncio.create_task(process.run())
        await until(lambda: process.leads)
        for port in process.serving_ports:
            for address in open_at:
                await asyncio.to_thread(ship, address, port)
            for address in closed_at:
                with pytest.raises(ConnectionRefusedError):
                    await asyncio.to_thread(ship, address, port)
        process.stop()
        await running

    asyncio.run(run())


def test_a_process_whose_session_is_lost_serves_again_under_a_new_one(world: World) -> None:
    async def run() -> None:
        store = MemoryStore(world.ensemble)
        process = world.process(store)
        running = asyncio.create_task(process.run())
        await until(lambda: process.leads)
        before = world.ports
        store.expire()
        await until(lambda: process.leads and world.ports and world.ports != before)
        process.stop()
        await running

    asyncio.run(run())


def test_a_process_outlives_its_zookeeper_and_leaves_no_port_of_before(world: World) -> None:
    async def run() -> None:
        store = MemoryStore(world.ensemble)
        process = world.process(store)
        running = asyncio.create_task(process.run())
        await until(lambda: process.leads)
        before = world.ports
        store.disconnect()
        await until(lambda: not process.leads)
        assert world.ports == before  # they stand there for as long as the session does, which lives on
        store.reconnect()
        await until(lambda: process.leads)
        assert len(world.ports) == 2
        assert set(world.ports).isdisjoint(before)
        process.stop()
        await running

    asyncio.run(run())


def test_a_session_that_ends_while_ports_are_registered_ends_no_process(world: World) -> None:
    async def run() -> None:
        process = world.process(LosingStore(world.ensemble))
        running = asyncio.create_task(process.run())
        await until(lambda: process.leads)
        assert len(world.ports) == 2
        process.stop()
        await running

    asyncio.run(run())


def test_while_kafka_is_away_a_leader_has_no_ports_and_tries_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_process, "_PAUSE_S", 0.01)

    async def run() -> None:
        world.broker.set_down(True)
        process = world.process()
        running = asyncio.create_task(process.run())
        await until(lambda: world.store.children(PATHS.leader))
        assert world.ports == ()
        world.broker.set_down(False)
        await until(lambda: process.leads)
        process.stop()
        await running

    asyncio.run(run())


def test_a_subscription_that_is_dropped_ends_its_processes_and_their_journal(world: World) -> None:
    async def run() -> None:
        process = world.process()
        running = asyncio.create_task(process.run())
        await until(lambda: process.leads)
        world.store.commit([Delete(PATHS.definition)])
        await running
        assert world.ports == ()

    asyncio.run(run())
    assert world.forgotten == 1
