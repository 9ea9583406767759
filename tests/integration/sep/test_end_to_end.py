"""Writes to a real HBase are records of a Kafka topic, each once and in the order of its row."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest
from click.testing import CliRunner
from rtolap.cli.main import load
from rtolap.model.subscription import HBaseSource, Subscription, SubscriptionPoison
from rtolap.sep.subscriptions.commands import create, drop
from rtolap.sep.subscriptions.source import SourceCluster, open_source

from tests.support.hbase import mutations
from tests.support.hbase.client import HBaseClient
from tests.support.seeds import so_many
from tests.support.sep.consumers import ConsumerProcess, wait_for_leader
from tests.support.sep.numbered_rows import Topic, Writer, subscription_of
from tests.support.waiting import until

pytestmark = pytest.mark.integration


@pytest.fixture
def source(hbase: str) -> Iterator[SourceCluster]:
    with open_source(HBaseSource(zookeeper=hbase)) as source:
        yield source


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


@pytest.fixture
def subscribe(
    source: SourceCluster, start: Callable[[str], ConsumerProcess]
) -> Iterator[Callable[[Subscription], None]]:
    """Dropped before `start` ends its processes: HBase waits for calls to a consumer that is gone."""
    made: list[str] = []

    def make(subscription: Subscription) -> None:
        create(source, subscription, int(time.time() * 1000))
        made.append(subscription.name)

    yield make
    for name in made:
        drop(source, name)


@pytest.mark.seeded
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


def test_a_value_of_another_type_is_a_dead_letter_and_holds_up_nothing(
    hbase: str,
    kafka: str,
    hbase_client: HBaseClient,
    unique_name: str,
    subscribe: Callable[[Subscription], None],
    start: Callable[[str], ConsumerProcess],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = hbase_client.create_table(unique_name)
    plain = subscription_of(unique_name, table, hbase)
    subscribe(msgspec.structs.replace(plain, poison=SubscriptionPoison("skip", 2)))
    leader = start(unique_name)
    wait_for_leader([leader])
    hbase_client.write(table, mutations.put(b"a", {"cf:n": b"no long"}))
    hbase_client.write(table, mutations.put(b"a", {"cf:n": struct.pack(">q", 1)}))
    topic = Topic(kafka, f"{unique_name}_changes")
    until(lambda: topic.poll() >= 1, "what comes after it")
    assert topic.counts_by_row() == {b"a": [1]}
    topic.close()
    monkeypatch.setenv("RTOLAP_KAFKA", kafka)
    listed = CliRunner().invoke(load("sep"), ["dead-letters", unique_name, "--cluster", hbase, "--json"])
    [letter] = json.loads(listed.stdout)
    assert letter["table"] == table
    assert "expected 8 bytes for long; found 7 bytes" in letter["detail"]

    def delivery() -> dict[str, int]:
        words = ["describe", unique_name, "--cluster", hbase, "--json"]
        state: dict[str, int] = json.loads(CliRunner().invoke(load("sep"), words).stdout)["delivery"]
        return state

    until(lambda: delivery()["dead_letters"] == 1, "the state that the process shows", poll_s=1.0)
    assert delivery()["delivered"] == 1
