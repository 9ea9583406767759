"""Several consumers of one subscription on a real HBase: each edit once, rows in order, whoever is killed."""

from __future__ import annotations

import json
import os
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
from rtolap.model.subscription import HBaseSource, Subscription, SubscriptionListener
from rtolap.sep.shares.nodes import ShareNodes
from rtolap.sep.subscriptions.commands import create, drop
from rtolap.sep.subscriptions.records import SubscriptionPaths
from rtolap.sep.subscriptions.source import SourceCluster, open_source

from tests.support.hbase.client import HBaseClient
from tests.support.sep.consumers import ConsumerProcess
from tests.support.sep.numbered_rows import Topic, subscription_of
from tests.support.sep.python_listener import LISTENER, Kept, install
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


def first_of_each(kept: list[Kept]) -> list[Kept]:
    """Return the first delivery of each event, in the order of time."""
    firsts = {(each.row, each.n): each for each in reversed(kept)}
    return sorted(firsts.values(), key=lambda each: each.at_ns)


def assert_order_kept(kept: list[Kept]) -> None:
    """Check that the events of a row came in their order, but for those that are flagged as late."""
    largest: dict[tuple[str, str], int] = {}
    for each in first_of_each(kept):
        place = each.row, each.region
        assert each.late or each.n > largest.get(place, 0), (each, largest[place])
        largest[place] = max(each.n, largest.get(place, 0))


def test_a_python_listener_of_several_consumers_gets_each_edit_once_but_for_what_a_kill_cuts_off(
    hbase: str,
    source: SourceCluster,
    hbase_client: HBaseClient,
    unique_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    subscribe: Callable[[Subscription], None],
    start: Callable[[str], ConsumerProcess],
) -> None:
    installed = install(tmp_path, os.environ.get("PYTHONPATH", ""))
    for name, value in installed.environment.items():
        monkeypatch.setenv(name, value)
    table = hbase_client.create_table(unique_name, splits=[b"20"])
    listener = SubscriptionListener("python", entry_point=LISTENER, lanes=2)
    declared = msgspec.structs.replace(
        subscription_of(unique_name, table, hbase), consumers=SHARES, listener=listener
    )
    subscribe(declared)
    processes = [start(unique_name) for _ in range(SHARES)]
    try:
        wait_for_holders(source, unique_name, [1, 1, 1])
        with SteadyWriter(hbase, table, Random(5)) as writer:
            writer.wait(60)
            until(lambda: len({each.pid for each in installed.kept()}) == SHARES, "events at each consumer")
            killed = processes[1].process.pid
            processes[1].kill()  # with what is under way
            wait_for_holders(source, unique_name, [2, 1])
            writer.wait(60)
        written = {row.decode(): numbers for row, numbers in writer.written().items()}

        def delivered() -> dict[str, list[int]]:
            of_row: dict[str, set[int]] = {}
            for each in installed.kept():
                of_row.setdefault(each.row, set()).add(each.n)
            return {row: sorted(numbers) for row, numbers in of_row.items()}

        until(lambda: delivered() == written, "all that HBase has")
    except AssertionError as error:
        raise AssertionError(words_of(processes)) from error
    kept = installed.kept()
    assert_order_kept(kept)
    times = Counter((each.row, each.n) for each in kept)
    again = {event for event, count in times.items() if count > 1}
    assert max(times.values()) <= 2
    by_killed = [each for each in kept if each.pid == killed]
    for row in {row for row, _ in again}:
        of_row = [(each.row, each.n) for each in by_killed if each.row == row]
        cut_off = [event for event in of_row if event in again]
        assert len(cut_off) == sum(event[0] == row for event in again), "only what the killed one had begun"
        assert cut_off == of_row[len(of_row) - len(cut_off) :], "of a row, only what was not noted yet"
    for process in (processes[0], processes[2]):
        assert process.stop() == 0
