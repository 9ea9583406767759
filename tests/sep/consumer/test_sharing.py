"""Processes of a subscription with several consumers, over real sockets: shares, ports, parts, fences."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.metrics import Metrics
from rtolap.metadata.store import Create, Delete
from rtolap.sep.consumer.allowed_addresses import AllowedAddresses
from rtolap.sep.consumer.server import ConsumerServer
from rtolap.sep.consumer.share_metrics import show_shares
from rtolap.sep.consumer.sharing import Reached, SharedProcess
from rtolap.sep.delivery.delivery import Delivery
from rtolap.sep.delivery.journal import Journal, Share
from rtolap.sep.delivery.requests import Request, post
from rtolap.sep.delivery.state import read_state
from rtolap.sep.events.decode import EditDecoder
from rtolap.sep.listeners.kafka_topic import KafkaTopicListener
from rtolap.sep.shares.endpoint import PartsEndpoint
from rtolap.sep.subscriptions.records import SubscriptionPaths

from tests.support.sep.delivery_runs import encode
from tests.support.sep.replication_client import RegionServer
from tests.support.sep.share_numbers import share_of
from tests.support.sep.wal_calls import Cell, Entry
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryAdmin
from tests.support.twins.kafka_transactions import MemoryTransactionalProducer
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

PATHS = SubscriptionPaths("orders")
CLUSTER_ID = "5e0bd3a8-0c4d-4d58-9f0e-6d2f5d4f1c11"
COUNT = 3
TOKEN = "the token of the cluster"
ROWS = [b"row-%03d" % number for number in range(60)]


class World:
    """One ZooKeeper and one broker; every process has a session of its own."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.broker.create("changes", 4)
        self.ensemble = MemoryEnsemble()
        self.store = MemoryStore(self.ensemble)
        self.forgotten = 0
        self._made = 0
        self.stores: dict[SharedProcess, MemoryStore] = {}
        self.store.commit([Create(PATHS.definition, b""), Create(PATHS.rs, b"")])

    def process(self, token: str = TOKEN) -> SharedProcess:
        store = MemoryStore(self.ensemble)
        self._made += 1
        made = SharedProcess(
            "orders",
            COUNT,
            store,
            SystemClock(),
            open_delivery=self.delivery,
            make_server=lambda deliver, set_apart, answers: ConsumerServer(
                EditDecoder(), deliver, allowed=AllowedAddresses(lambda: ["127.0.0.1"]), answers=answers
            ),
            open_endpoint=lambda loop, share: PartsEndpoint(
                loop,
                CLUSTER_ID,
                share,
                1 << 20,
                host="127.0.0.1",
                port=0,
                token=token,
                metrics=Metrics("sep_consumer"),
            ),
            token=token,
            cluster_id=CLUSTER_ID,
            reached=Reached("localhost", "127.0.0.1", [0]),
            session_timeout_s=60.0,
            member_id=f"consumer-{self._made}",
            is_wanted=lambda: store.get(PATHS.definition) is not None,
            forget=self._forget,
        )
        self.stores[made] = store
        return made

    def delivery(self, number: int, leads: Callable[[], bool]) -> Delivery:
        journal = Journal(
            "journal",
            open_producer=lambda name: MemoryTransactionalProducer(self.broker, name),
            open_consumer=lambda topic: MemoryConsumer(self.broker, topic),
            admin=MemoryAdmin(self.broker),
            share=Share(number, COUNT),
        )
        return Delivery(KafkaTopicListener("changes", encode), journal, SystemClock(), leads=leads)

    def _forget(self) -> None:
        self.forgotten += 1

    @property
    def ports(self) -> tuple[str, ...]:
        return self.store.children(PATHS.rs)

    def holders(self) -> list[int]:
        """Return how many shares each holder has."""
        nodes = [self.store.get(PATHS.holder(share)) for share in range(COUNT)]
        return sorted(Counter(node.data for node in nodes if node is not None).values())

    def delivered(self) -> list[bytes]:
        with self.broker.changed:
            return [record.value or b"" for log in self.broker.logs("changes") for record in log.records]


class Running:
    """Processes that run on the loop of a test; all are stopped at its end."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tasks: dict[SharedProcess, asyncio.Task[None]] = {}

    def start(self, token: str = TOKEN) -> SharedProcess:
        process = self.world.process(token)
        self.tasks[process] = asyncio.create_task(process.run())
        return process

    async def stop(self, process: SharedProcess) -> None:
        process.stop()
        await self.tasks.pop(process)


def on_loop(world: World, test: Callable[[Running], object]) -> None:
    async def run() -> None:
        running = Running(world)
        try:
            await test(running)  # type: ignore[misc]
        finally:
            for process in list(running.tasks):
                await running.stop(process)

    asyncio.run(run())


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def ship(port: int, sequence_ids: Sequence[int], rows: Sequence[bytes] = ROWS) -> str:
    """Ship an edit of all the rows for each id; return the exception of the answer."""
    with RegionServer(port) as server:
        header, _ = server.ship(1, [Entry(tuple(Cell(row) for row in rows), at) for at in sequence_ids])
    return header.exception.stack_trace if header.HasField("exception") else ""


@pytest.fixture
def world() -> World:
    return World()


def test_the_rows_of_a_shares_are_in_every_share() -> None:
    assert {share_of(row, COUNT) for row in ROWS} == set(range(COUNT))


def test_one_holds_all_shares_and_whoever_joins_gets_its_part(world: World) -> None:
    async def test(running: Running) -> None:
        running.start()
        await until(lambda: world.holders() == [3] and len(world.ports) == 1)
        second = running.start()
        await until(lambda: world.holders() == [1, 2] and len(world.ports) == 2)
        third, fourth = running.start(), running.start()
        await until(lambda: world.holders() == [1, 1, 1] and len(world.ports) == 3)
        standing_by = [each for each in (third, fourth) if not each.serving]
        assert len(standing_by) == 1
        assert standing_by[0].serving_ports == []
        await running.stop(second)
        await until(lambda: world.holders() == [1, 1, 1] and len(world.ports) == 3)

    on_loop(world, test)
    assert world.ports == ()
    assert world.store.children(PATHS.consumers) == ()
    assert world.forgotten == 0


def test_a_call_is_delivered_by_the_holders_of_its_rows_whichever_port_takes_it(world: World) -> None:
    async def test(running: Running) -> None:
        processes = [running.start() for _ in range(COUNT)]
        await until(lambda: all(len(each.serving) == 1 and each.serving_ports for each in processes))
        for at, process in enumerate(processes):
            assert await asyncio.to_thread(ship, process.serving_ports[0], [at + 1]) == ""
        # the same again, at another one: nothing is delivered twice
        assert await asyncio.to_thread(ship, processes[1].serving_ports[0], [1, 2, 3]) == ""
        for process in processes:
            (share,) = process.serving
            own = sum(share_of(row, COUNT) == share for row in ROWS)
            counts = process.deliveries[share].counts
            assert (counts.delivered, counts.duplicates) == (3 * own, 3 * own)
            assert process.router is not None
            assert process.router.forwarded_events > 0
        metrics = Metrics("sep_consumer")
        show_shares(metrics, processes[0])
        (share,) = processes[0].serving
        page = metrics.render()[0].decode()
        delivered = float(processes[0].deliveries[share].counts.delivered)
        assert f'delivery_events_total{{outcome="delivered",share="{share}"}} {delivered}' in page
        assert "rtolap_sep_consumer_shares_held 1.0" in page
        state = read_state(world.store, PATHS.delivery_of(share, COUNT))
        await until(lambda: read_state(world.store, PATHS.delivery_of(share, COUNT)) is not None)
        assert state is None or state.consumer.startswith("consumer-")

    on_loop(world, test)
    found = Counter(world.delivered())
    assert set(found.values()) == {1}
    assert len(found) == 3 * len(ROWS)


def test_a_consumer_whose_session_is_lost_gets_shares_again_and_delivers_nothing_twice(world: World) -> None:
    async def test(running: Running) -> None:
        first, second = running.start(), running.start()
        # A port is shown before its process notes that it serves it.
        await until(lambda: world.holders() == [1, 2] and first.serving_ports and second.serving_ports)
        assert await asyncio.to_thread(ship, first.serving_ports[0], [1]) == ""
        world.stores[first].expire()
        await until(lambda: world.holders() in ([3], [1, 2]))
        assert await asyncio.to_thread(ship, second.serving_ports[0], [1, 2]) == ""
        await until(lambda: world.holders() == [1, 2] and len(world.ports) == 2)
        assert await asyncio.to_thread(ship, second.serving_ports[0], [2, 3]) == ""

    on_loop(world, test)
    found = Counter(world.delivered())
    assert set(found.values()) == {1}
    assert len(found) == 3 * len(ROWS)


def test_a_share_that_another_process_took_over_is_recovered_by_its_holder(world: World) -> None:
    async def test(running: Running) -> None:
        process = running.start()
        await until(lambda: len(process.serving) == COUNT and process.serving_ports)
        before = process.deliveries[0]
        late = world.delivery(0, lambda: True)  # one that wakes up in the middle of its take-over
        await asyncio.to_thread(late.recover)
        await asyncio.to_thread(ship, process.serving_ports[0], [1])
        await until(lambda: 0 in process.deliveries and process.deliveries[0] is not before)
        assert await asyncio.to_thread(ship, process.serving_ports[0], [1]) == ""
        late.close()

    on_loop(world, test)
    found = Counter(world.delivered())
    assert set(found.values()) == {1}
    assert len(found) == len(ROWS)


def test_while_kafka_is_away_shares_are_held_and_served_once_it_is_back(world: World) -> None:
    async def test(running: Running) -> None:
        world.broker.set_down(True)
        process = running.start()
        await until(lambda: world.holders() == [3])
        assert process.serving == []
        assert world.ports == ()
        world.broker.set_down(False)
        await until(lambda: len(process.serving) == COUNT and world.ports)

    on_loop(world, test)


def test_zookeeper_that_is_away_ends_no_process_and_its_shares_are_lost(world: World) -> None:
    async def test(running: Running) -> None:
        process = running.start()
        await until(lambda: len(process.serving) == COUNT)
        world.stores[process].disconnect()
        await until(lambda: not process.serving)
        world.stores[process].reconnect()
        await until(lambda: len(process.serving) == COUNT and process.serving_ports)
        assert await asyncio.to_thread(ship, process.serving_ports[0], [1]) == ""
        assert len(world.ports) == 1

    on_loop(world, test)


def test_a_consumer_without_the_clusters_token_gets_no_edits(world: World) -> None:
    async def test(running: Running) -> None:
        first = running.start()
        await until(lambda: len(first.serving) == COUNT and first.serving_ports)
        other = running.start(token="another token")
        await until(lambda: other.serving)
        answer = await asyncio.to_thread(ship, first.serving_ports[0], [1])
        assert "does not prove" in answer

    on_loop(world, test)


def test_requests_of_commands_reach_every_share(world: World) -> None:
    async def test(running: Running) -> None:
        running.start()
        running.start()
        await until(lambda: world.holders() == [1, 2])
        for share in range(COUNT):
            post(world.store, PATHS.requests_of(share, COUNT), Request("replay"))
        await until(
            lambda: not any(world.store.children(PATHS.requests_of(share, COUNT)) for share in range(COUNT))
        )

    on_loop(world, test)


def test_a_subscription_that_is_dropped_ends_its_consumers(world: World) -> None:
    async def test(running: Running) -> None:
        processes = [running.start(), running.start()]
        await until(lambda: world.holders() == [1, 2])
        world.store.commit([Delete(PATHS.definition)])
        for process in processes:
            await running.tasks.pop(process)

    on_loop(world, test)
    assert world.ports == ()
    assert world.forgotten == 2
