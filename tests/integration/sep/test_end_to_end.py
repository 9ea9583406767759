"""Writes to a real HBase are records of a Kafka topic, each once and in the order of its row."""

from __future__ import annotations

import json
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition
from rtolap.model.subscription import (
    CellColumn,
    HBaseSource,
    RowColumn,
    Subscription,
    SubscriptionListener,
)
from rtolap.sep.subscriptions.commands import create, drop
from rtolap.sep.subscriptions.source import SourceCluster, open_source

from tests.support.hbase import mutations
from tests.support.hbase.client import HBaseClient
from tests.support.seeds import so_many
from tests.support.sep.consumers import ConsumerProcess, wait_for_leader
from tests.support.waiting import until

pytestmark = pytest.mark.integration

ROWS = [b"%02d" % number for number in range(40)]


class Record(NamedTuple):
    value: dict[str, object]
    headers: dict[str, bytes]

    @property
    def is_late(self) -> bool:
        return self.headers["late"] == b"1"


class Topic:
    """Everything that is committed in a topic, as it comes."""

    def __init__(self, kafka: str, topic: str) -> None:
        self.records: list[Record] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": "unused",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        partitions = self._consumer.list_topics(topic, timeout=20).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])

    def poll(self) -> int:
        for message in self._consumer.consume(10_000, 0.1):
            assert message.error() is None, message.error()
            self.records.append(Record(json.loads(message.value()), dict(message.headers())))
        return len(self.records)

    def counts_by_row(self) -> dict[bytes, list[int]]:
        """The numbers of each row, in their order; late ones have to be flagged."""
        rows: dict[bytes, list[int]] = defaultdict(list)
        for record in self.records:
            row, number = str(record.value["row"]).encode(), int(str(record.value["n"]))
            assert record.is_late or number > max(rows[row], default=0), (row, number, rows[row])
            rows[row].append(number)
        return rows

    def close(self) -> None:
        self._consumer.close()


class Writer:
    """Writes a number that grows with each write of its row."""

    def __init__(self, client: HBaseClient, table: str, random: Random) -> None:
        self.written = dict.fromkeys(ROWS, 0)
        self._client, self._table, self._random = client, table, random

    def write(self, count: int) -> None:
        for _ in range(count):
            rows = self._random.sample(ROWS, self._random.randint(1, 5))
            self._client.write_all(self._table, [self._put(row) for row in rows])

    def _put(self, row: bytes) -> mutations.MutationProto:
        self.written[row] += 1
        return mutations.put(row, {"cf:n": struct.pack(">q", self.written[row])})

    @property
    def total(self) -> int:
        return sum(self.written.values())


@pytest.fixture
def source(hbase: str) -> Iterator[SourceCluster]:
    with open_source(HBaseSource(zookeeper=hbase)) as source:
        yield source


@pytest.fixture
def subscribe(source: SourceCluster) -> Iterator[Callable[[Subscription], None]]:
    made: list[str] = []

    def make(subscription: Subscription) -> None:
        create(source, subscription, int(time.time() * 1000))
        made.append(subscription.name)

    yield make
    for name in made:
        drop(source, name)


@pytest.fixture
def start(hbase: str, kafka: str, tmp_path: Path) -> Iterator[Callable[[str], ConsumerProcess]]:
    started: list[ConsumerProcess] = []

    def make(name: str) -> ConsumerProcess:
        log = tmp_path / f"consumer-{len(started)}.log"
        started.append(ConsumerProcess(name, hbase, kafka, log))
        return started[-1]

    yield make
    for process in started:
        process.kill()


def subscription_of(name: str, table: str, hbase: str) -> Subscription:
    return Subscription(
        name=name,
        source=HBaseSource(zookeeper=hbase),
        listener=SubscriptionListener("kafka", topic=f"{name}_changes"),
        tables={table: ("cf",)},
        row=RowColumn("row", "string"),
        columns={"n": CellColumn("cf:n", "long")},
    )


@pytest.mark.parametrize("seed", range(so_many(1)))
def test_every_write_is_one_record_though_consumers_are_killed_and_regions_move(
    seed: int,
    hbase: str,
    kafka: str,
    hbase_client: HBaseClient,
    unique_name: str,
    subscribe: Callable[[Subscription], None],
    start: Callable[[str], ConsumerProcess],
) -> None:
    random = Random(seed)
    table = hbase_client.create_table(unique_name, splits=[b"10", b"20", b"30"])
    subscribe(subscription_of(unique_name, table, hbase))
    writer = Writer(hbase_client, table, random)
    processes = [start(unique_name), start(unique_name)]
    writer.write(20)
    leader = wait_for_leader(processes)
    topic = Topic(kafka, f"{unique_name}_changes")
    until(lambda: topic.poll() >= writer.total, "the first writes")

    writer.write(60)
    leader.kill()  # with what is under way
    processes.remove(leader)
    region = random.choice(hbase_client.regions(table))
    others = [server for server in hbase_client.region_servers() if server != region.server]
    hbase_client.move(region, random.choice(others))
    writer.write(60)
    leader = wait_for_leader(processes)
    processes.append(start(unique_name))
    writer.write(40)
    until(lambda: topic.poll() >= writer.total, "what was written meanwhile")

    leader.kill()
    processes.remove(leader)
    writer.write(40)
    wait_for_leader(processes)
    try:
        until(lambda: topic.poll() >= writer.total, "the last writes")
    except AssertionError as error:
        words = "\n".join(process.log.read_text() for process in processes)
        raise AssertionError(f"seed {seed}: {len(topic.records)} of {writer.total}\n{words}") from error
    topic.poll()
    counts = topic.counts_by_row()
    topic.close()
    assert {row: sorted(numbers) for row, numbers in counts.items()} == {
        row: list(range(1, count + 1)) for row, count in writer.written.items() if count
    }, f"seed {seed}"


def test_a_leader_that_stood_still_writes_nothing_once_another_leads(
    hbase: str,
    kafka: str,
    hbase_client: HBaseClient,
    unique_name: str,
    subscribe: Callable[[Subscription], None],
    start: Callable[[str], ConsumerProcess],
) -> None:
    table = hbase_client.create_table(unique_name)
    subscribe(subscription_of(unique_name, table, hbase))
    writer = Writer(hbase_client, table, Random(1))
    first = start(unique_name)
    wait_for_leader([first])
    topic = Topic(kafka, f"{unique_name}_changes")
    writer.write(10)
    until(lambda: topic.poll() >= writer.total, "the first writes")
    second = start(unique_name)
    first.pause()
    writer.write(20)
    wait_for_leader([second])
    first.resume()
    writer.write(20)
    until(lambda: topic.poll() >= writer.total, "all writes")
    assert second.leads
    counts = topic.counts_by_row()
    topic.close()
    assert {row: sorted(numbers) for row, numbers in counts.items()} == {
        row: list(range(1, count + 1)) for row, count in writer.written.items() if count
    }
    assert first.stop() == 0
