"""Every write arrives once, whatever of the source, of ZooKeeper or of Kafka is killed and started again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from rtolap.model.subscription import HBaseSource
from rtolap.sep.subscriptions import commands
from rtolap.sep.subscriptions.source import open_source
from rtolap.stack.process import ManagedProcess

from tests.support.hbase.client import HBaseClient, Region
from tests.support.hbase.distributed import REGION_SERVERS, DistributedHBase
from tests.support.seeds import so_many
from tests.support.sep.consumers import ConsumerProcess, wait_for_leader
from tests.support.sep.numbered_rows import Topic, Writer, subscription_of
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.seeded]


class Faults:
    """Each is over when it returns: everything runs again, but what it makes HBase do may take longer."""

    def __init__(
        self, hbase: DistributedHBase, kafka: ManagedProcess, client: HBaseClient, table: str, random: Random
    ) -> None:
        self._hbase, self._kafka, self._client = hbase, kafka, client
        self._table, self._random = table, random

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
        if not region.info.start_key:
            self._client.split(region, b"20")

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


@pytest.fixture
def consumers(
    hbase_processes: DistributedHBase, kafka: str, tmp_path: Path
) -> Iterator[Callable[[str], ConsumerProcess]]:
    with ExitStack() as opened:

        def start(name: str) -> ConsumerProcess:
            log = tmp_path / f"consumer-{time.monotonic_ns()}.log"
            process = ConsumerProcess(name, hbase_processes.address, kafka, log)
            opened.callback(process.kill)
            return process

        yield start


@pytest.mark.parametrize("seed", range(so_many(1)))
def test_every_write_is_one_record_over_faults(
    seed: int,
    hbase_processes: DistributedHBase,
    kafka: str,
    kafka_server: ManagedProcess,
    consumers: Callable[[str], ConsumerProcess],
    unique_name: str,
) -> None:
    random = Random(seed)
    with ExitStack() as opened:
        client = opened.enter_context(HBaseClient(hbase_processes.address))
        source = opened.enter_context(open_source(HBaseSource(hbase_processes.address), timeout_s=60))
        table = client.create_table(unique_name)
        subscription = subscription_of(unique_name, table, hbase_processes.address)
        commands.create(source, subscription, time.time_ns() // 1_000_000)
        processes = [consumers(unique_name), consumers(unique_name)]
        writer = Writer(client, table, random)
        writer.write(20)
        wait_for_leader(processes)
        topic = Topic(kafka, f"{unique_name}_changes")
        opened.callback(topic.close)
        faults = Faults(hbase_processes, kafka_server, client, table, random)
        order = [
            faults.region_server_killed,
            faults.zookeeper_killed,
            faults.master_killed,
            faults.region_moved_and_split,
            faults.kafka_killed,
        ]
        random.shuffle(order)
        for fault in order:
            writer.write(20)  # some of it is on its way when the fault comes
            fault()
        writer.write(20)
        try:
            until(lambda: topic.poll() >= writer.total, "every write", timeout_s=120)
        except AssertionError as error:
            words = "\n".join(process.log.read_text()[-3000:] for process in processes)
            done = [fault.__name__ for fault in order]
            raise AssertionError(
                f"seed {seed}, {done}: {len(topic.records)} of {writer.total}\n{words}"
            ) from error
        topic.poll()
        counts = topic.counts_by_row()
        assert {row: sorted(numbers) for row, numbers in counts.items()} == {
            row: list(range(1, count + 1)) for row, count in writer.written.items() if count
        }, f"seed {seed}"
        commands.drop(source, unique_name)
