"""Every write arrives once, whatever of the source, of ZooKeeper or of Kafka is killed and started again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec
import pytest
from rtolap.model.subscription import HBaseSource, SubscriptionListener
from rtolap.sep.subscriptions import commands
from rtolap.sep.subscriptions.source import open_source
from rtolap.stack.process import ManagedProcess

from tests.support.hbase.client import HBaseClient, Region
from tests.support.hbase.distributed import REGION_SERVERS, DistributedHBase
from tests.support.seeds import so_many
from tests.support.sep import noted_events
from tests.support.sep.consumers import ConsumerProcess, ports_of, wait_for_leader
from tests.support.sep.numbered_rows import Topic, subscription_of
from tests.support.sep.steady_writer import SteadyWriter
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.seeded]

WITHOUT_ZOOKEEPER = "this process waits for the source's ZooKeeper"


@dataclass
class Followed:
    """A table that a client writes to without pause, and two processes that follow it into a topic."""

    client: HBaseClient
    table: str
    name: str
    writer: SteadyWriter
    topic: Topic
    processes: list[ConsumerProcess]

    def ports(self) -> tuple[str, ...]:
        return ports_of(self.client.store, self.name)

    def compare(self, story: str) -> None:
        """What HBase has in the end is in the topic, each write once."""
        self.writer.stop()
        written = self.writer.written()
        total = sum(map(len, written.values()))
        try:
            until(lambda: self.topic.poll() >= total, "every write", timeout_s=120)
        except AssertionError as error:
            words = "\n".join(process.log.read_text()[-3000:] for process in self.processes)
            raise AssertionError(f"{story}: {len(self.topic.records)} of {total}\n{words}") from error
        self.topic.poll()
        counts = {row: sorted(numbers) for row, numbers in self.topic.counts_by_row().items()}
        assert counts == written, story
        assert [process.lives for process in self.processes] == [True, True], story


@contextmanager
def followed(
    hbase: DistributedHBase, kafka: str, name: str, random: Random, folder: Path
) -> Iterator[Followed]:
    with ExitStack() as opened:
        client = opened.enter_context(HBaseClient(hbase.address))
        source = opened.enter_context(open_source(HBaseSource(hbase.address), timeout_s=60))
        table = client.create_table(name, splits=[b"20"])
        commands.create(source, subscription_of(name, table, hbase.address), time.time_ns() // 1_000_000)
        processes = []
        for number in range(2):
            log = folder / f"consumer-{number}.log"
            processes.append(ConsumerProcess(name, hbase.address, kafka, log, session_timeout_s=2))
            opened.callback(processes[-1].kill)
        opened.callback(commands.drop, source, name)  # while they live: HBase waits for calls to who is gone
        writer = opened.enter_context(SteadyWriter(hbase.address, table, Random(random.random())))
        wait_for_leader(processes)
        topic = Topic(kafka, f"{name}_changes")
        opened.callback(topic.close)
        yield Followed(client, table, name, writer, topic, processes)


@contextmanager
def followed_by_a_function(
    hbase: DistributedHBase, kafka: str, run: Followed, folder: Path
) -> Iterator[ConsumerProcess]:
    """Another subscription of the same table, from its first write on."""
    name = f"{run.name}_function"
    subscription = msgspec.structs.replace(
        subscription_of(name, run.table, hbase.address),
        listener=SubscriptionListener("python", entry_point=noted_events.ENTRY_POINT, lanes=3),
    )
    with open_source(HBaseSource(hbase.address), timeout_s=60) as source, ExitStack() as opened:
        commands.create(source, subscription, 0)
        process = ConsumerProcess(name, hbase.address, kafka, folder / "function.log", session_timeout_s=2)
        opened.callback(process.kill)
        opened.callback(commands.drop, source, name)
        wait_for_leader([process])
        yield process


class Faults:
    """Each is over when it returns: everything runs again, but what it makes HBase do may take longer."""

    def __init__(self, hbase: DistributedHBase, kafka: ManagedProcess, run: Followed, random: Random) -> None:
        self._hbase, self._kafka, self._random = hbase, kafka, random
        self._client, self._table = run.client, run.table

    def region_server_killed(self) -> None:
        """Its logs become a recovered queue."""
        server = self._random.choice(self._hbase.region_servers)
        server.kill()
        until(lambda: len(self._client.region_servers()) < REGION_SERVERS, "its session is over")
        self._settle()

    def zookeeper_killed(self) -> None:
        self._hbase.zookeeper.kill()
        self._hbase.zookeeper.start()
        self._settle()

    def master_killed(self) -> None:
        self._hbase.master.kill()
        self._settle()

    def region_moved_and_split(self) -> None:
        region = max(self._regions(), key=lambda each: each.info.start_key)
        others = [server for server in self._client.region_servers() if server != region.server]
        self._client.move(region, self._random.choice(others))
        self._client.split(region, b"30")

    def kafka_killed(self) -> None:
        self._kafka.kill()
        self._kafka.start()

    def _settle(self) -> None:
        """Wait until HBase has all its processes, and every region is on one that lives."""

        def is_settled() -> bool:
            self._hbase.revive()
            living = self._client.region_servers()
            return (
                len(living) == REGION_SERVERS
                and self._hbase.master.missing() is None
                and all(region.server in living for region in self._regions())
            )

        until(is_settled, "HBase is whole again", poll_s=0.2)

    def _regions(self) -> list[Region]:
        return self._client.regions(self._table)


@pytest.mark.parametrize("seed", range(so_many(1)))
def test_every_write_is_one_record_over_faults(
    seed: int,
    hbase_processes: DistributedHBase,
    kafka: str,
    kafka_server: ManagedProcess,
    unique_name: str,
    tmp_path: Path,
) -> None:
    random = Random(seed)
    with followed(hbase_processes, kafka, unique_name, random, tmp_path) as run:
        faults = Faults(hbase_processes, kafka_server, run, random)
        order = [
            faults.region_server_killed,
            faults.zookeeper_killed,
            faults.master_killed,
            faults.region_moved_and_split,
            faults.kafka_killed,
        ]
        random.shuffle(order)
        for fault in order:
            run.writer.wait(20)  # some of it is on its way when the fault comes
            fault()
        run.writer.wait(20)
        run.compare(f"seed {seed}, {[fault.__name__ for fault in order]}")


@pytest.mark.parametrize("seed", range(so_many(1)))
def test_every_write_is_one_record_and_one_call_though_all_of_hbase_stops_and_starts(
    seed: int,
    hbase_processes: DistributedHBase,
    kafka: str,
    unique_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once in order and once by SIGKILL; then ZooKeeper stays away until a process has missed it."""
    hbase, random = hbase_processes, Random(seed)
    for name, value in noted_events.installed(tmp_path).items():
        monkeypatch.setenv(name, value)
    with (
        followed(hbase, kafka, unique_name, random, tmp_path) as run,
        followed_by_a_function(hbase, kafka, run, tmp_path) as process,
    ):

        def times_missed() -> int:
            return sum(process.told(WITHOUT_ZOOKEEPER) for process in run.processes)

        def stopped() -> None:
            hbase.stop()

        def killed() -> None:
            hbase.kill()
            before = times_missed()
            until(lambda: times_missed() > before, "a process that misses ZooKeeper")

        order: list[Callable[[], None]] = [stopped, killed]
        random.shuffle(order)
        for end in order:
            run.writer.wait(20)
            end()
            hbase.start()
            run.writer.wait(20)
        # those before where their session lives on and nobody has missed it, else others: never both
        until(lambda: len(run.ports()) == 2, "two ports")
        assert hbase.living(), "a process of HBase has ended by itself"
        story = f"seed {seed}, {[end.__name__ for end in order]}"
        run.compare(story)
        written = run.writer.written()
        try:
            until(lambda: _sorted(noted_events.noted(tmp_path)) == written, "each write is one call")
        except AssertionError as error:
            raise AssertionError(f"{story}\n{process.log.read_text()[-3000:]}") from error
        assert process.lives, story


def _sorted(rows: dict[bytes, list[int]]) -> dict[bytes, list[int]]:
    return {row: sorted(numbers) for row, numbers in rows.items()}
