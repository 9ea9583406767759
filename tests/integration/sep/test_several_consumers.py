"""Several consumers of one subscription on a real HBase: each edit once, rows in order, whoever is killed."""

from __future__ import annotations

import json
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from rtolap.cli.main import load
from rtolap.model.subscription import HBaseSource, Subscription
from rtolap.sep.shares.nodes import ShareNodes
from rtolap.sep.subscriptions.commands import create, drop
from rtolap.sep.subscriptions.records import SubscriptionPaths
from rtolap.sep.subscriptions.source import SourceCluster, open_source

from tests.support.hbase.client import HBaseClient
from tests.support.sep.consumers import ConsumerProcess
from tests.support.sep.numbered_rows import Topic, subscription_of
from tests.support.sep.steady_writer import SteadyWriter
from tests.support.waiting import until

pytestmark = pytest.mark.integration

SHARES = 3


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


def wait_for_holders(source: SourceCluster, name: str, counts: list[int]) -> None:
    """Wait until all shares are held, by so many consumers with so many shares each."""
    nodes = ShareNodes(source.store, SubscriptionPaths(name), SHARES)

    def are_held() -> bool:
        return sorted(Counter(nodes.look().holders.values()).values()) == sorted(counts)

    until(are_held, f"holders of {counts} shares")


def assert_shown(name: str, hbase: str) -> None:
    """Check that `describe` and `list` show three consumers that deliver, each a share."""

    def shown() -> dict[str, Any]:
        words = ["describe", name, "--cluster", hbase, "--json"]
        document: dict[str, Any] = json.loads(CliRunner().invoke(load("sep"), words).stdout)
        return document

    def all_deliver() -> bool:
        return all(share["delivery"] and share["delivery"]["delivered"] for share in shown()["shares"])

    until(all_deliver, "shares that show what they delivered", poll_s=1.0)
    document = shown()
    holders = [share["consumer"] for share in document["shares"]]
    assert sorted(holders) == sorted(document["consumers"])
    assert [share["delivery"]["consumer"] for share in document["shares"]] == holders
    text = CliRunner().invoke(load("sep"), ["describe", name, "--cluster", hbase]).stdout
    assert all(holder in text for holder in holders)
    listed = CliRunner().invoke(load("sep"), ["list", "--cluster", hbase]).stdout
    assert "3 of 3" in next(line for line in listed.splitlines() if line.startswith(name))


def words_of(processes: list[ConsumerProcess]) -> str:
    return "\n".join(f"--- {process.log.name}\n{process.log.read_text()[-6000:]}" for process in processes)


@pytest.mark.parametrize("serial", [False, True])
def test_what_several_consumers_deliver_is_what_hbase_has_each_event_once_and_rows_in_order(
    serial: bool,
    hbase: str,
    kafka: str,
    source: SourceCluster,
    hbase_client: HBaseClient,
    unique_name: str,
    subscribe: Callable[[Subscription], None],
    start: Callable[[str], ConsumerProcess],
) -> None:
    table = hbase_client.create_table(unique_name, splits=[b"20"])
    declared = msgspec.structs.replace(
        subscription_of(unique_name, table, hbase), consumers=SHARES, serial=serial
    )
    subscribe(declared)
    processes = [start(unique_name)]
    try:
        wait_for_holders(source, unique_name, [3])
        with SteadyWriter(hbase, table, Random(serial)) as writer:
            writer.wait(60)
            processes.append(start(unique_name))
            wait_for_holders(source, unique_name, [2, 1])
            writer.wait(60)
            (region,) = (region for region in hbase_client.regions(table) if region.holds(b"05"))
            hbase_client.split(region, b"10")
            processes.append(start(unique_name))
            wait_for_holders(source, unique_name, [1, 1, 1])
            writer.wait(60)
            assert_shown(unique_name, hbase)

            processes[1].kill()  # with what is under way
            writer.wait(30)
            wait_for_holders(source, unique_name, [2, 1])

            processes[0].pause()
            wait_for_holders(source, unique_name, [3])
            (region,) = (region for region in hbase_client.regions(table) if region.holds(b"30"))
            others = [server for server in hbase_client.region_servers() if server != region.server]
            hbase_client.move(region, others[0])
            writer.wait(60)
            processes[0].resume()
            wait_for_holders(source, unique_name, [2, 1])
            writer.wait(60)
        written = writer.written()
        topic = Topic(kafka, f"{unique_name}_changes")
        total = sum(map(len, written.values()))
        until(lambda: topic.poll() >= total, "all that HBase has")
        topic.poll()
    except AssertionError as error:
        raise AssertionError(words_of(processes)) from error
    counts = topic.counts_by_row()
    topic.close()
    assert {row: sorted(numbers) for row, numbers in counts.items()} == written
    newest = {
        row: struct.unpack(">q", cells["cf:n"][1])[0] for row, cells in hbase_client.scan(table).items()
    }
    by_id = {}
    for record in sorted(topic.records, key=lambda each: int(each.headers["sequence_id"])):
        by_id[str(record.value["row"]).encode()] = record.value["n"]
    assert by_id == newest
    assert not any(record.is_late for record in topic.records) or not serial
    for process in processes[2:]:
        assert process.stop() == 0
