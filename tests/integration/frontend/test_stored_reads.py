"""What nodes compute of a statement, over processes that are killed and loaded meanwhile."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import SendOptions

from tests.support.cubes.services import wait_for
from tests.support.stored.stored_cluster import StoredCluster
from tests.support.stored.stream_load_cluster import PASSWORD, USER

HOSTS, ROWS = 50, 600_000
OPTIONS = SendOptions(format="csv", headers={"column_separator": ","}, timeout_s=120)
TIMEOUT_S = 60.0
GROUPED = "select host, count(*), sum(n), min(id), max(id) from web.visits group by host"
MEMORY_MB_MAX = 16  # the three columns of all rows have 19 MB, and were held twice


@pytest.fixture(scope="module")
def cluster(owned: None, module_folder: Path, zookeeper: str) -> Iterator[StoredCluster]:
    folder = module_folder / "stored-reads"
    with StoredCluster(folder, f"sqlite:///{folder / 'ledger.db'}") as running:
        running.start(endpoints=1, nodes=3)
        running.start_query(zookeeper, f"/reads-{uuid.uuid4().hex}")
        running.ask("create database web")
        running.ask(
            "create table web.visits (id bigint not null, host varchar(40), n bigint) duplicate key(id) "
            "distributed by hash(id) buckets 4 properties ('replication_num' = '3')"
        )
        body = "".join(f"{at},the host of number {at % HOSTS},{at % 7}\n" for at in range(ROWS))
        with StreamLoadClient(running.urls, USER, PASSWORD) as client:
            assert client.load("web", "visits", "first", body.encode(), OPTIONS).status == "Success"
        yield running


def recount(first: int, rows: int) -> dict[str, tuple[int, int, int, int]]:
    found: dict[str, tuple[int, int, int, int]] = {}
    for at in range(first, first + rows):
        count, total, low, high = found.get(f"the host of number {at % HOSTS}", (0, 0, at, at))
        found[f"the host of number {at % HOSTS}"] = count + 1, total + at % 7, min(low, at), max(high, at)
    return found


def grouped(cluster: StoredCluster) -> dict[str, tuple[int, ...]]:
    return {str(host): tuple(map(int, rest)) for host, *rest in cluster.ask(GROUPED)}


def peak_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) >> 10


def test_a_group_by_takes_less_memory_than_its_rows(cluster: StoredCluster) -> None:
    pid = cluster.processes["query"].pid()
    assert pid is not None
    before_mb = peak_mb(pid)
    assert grouped(cluster) == recount(0, ROWS)
    assert peak_mb(pid) - before_mb < MEMORY_MB_MAX
    said = {str(item): str(value) for item, value in cluster.ask(f"explain analyze {GROUPED}")}
    assert int(said["rows read"]) == 4 * HOSTS
    assert said["nodes send"].startswith("partial aggregates rows(*), sum(n)")


def test_a_killed_node_costs_no_row_and_counts_none_twice(cluster: StoredCluster) -> None:
    """Answers are exact or named errors while nodes are killed one after another, in scans too."""
    expected, over = recount(0, ROWS), threading.Event()
    wrong: list[object] = []
    answers = [0]

    def ask() -> None:
        while not over.is_set():
            try:
                found = grouped(cluster)
            except pymysql.MySQLError:
                continue  # named: a majority, but not every tablet, may be away for a moment
            answers[0] += 1
            if found != expected:
                wrong.append(found)

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for thread in asking:
        thread.start()
    try:
        for name in ("node-0", "node-1", "node-2"):
            seen = answers[0]
            wait_for("an answer before the kill", lambda seen=seen: answers[0] > seen, TIMEOUT_S)
            cluster.kill(name)
            seen = answers[0]
            wait_for("answers without the node", lambda seen=seen: answers[0] > seen + 2, TIMEOUT_S)
            cluster.restart(name)
    finally:
        over.set()
        for thread in asking:
            thread.join()
    assert not wrong
    assert answers[0] >= 9


def test_loads_in_mid_scan_are_in_an_answer_whole_or_not_at_all(cluster: StoredCluster) -> None:
    """Enough loads that nodes compact while statements run: each load has a row for every host."""
    expected = {host: count for host, (count, *_) in recount(0, ROWS).items()}
    over, wrong, answers = threading.Event(), [], [0]

    def ask() -> None:
        while not over.is_set():
            counts = {host: found[0] - expected[host] for host, found in grouped(cluster).items()}
            answers[0] += 1
            if len(set(counts.values())) != 1:
                wrong.append(counts)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        with StreamLoadClient(cluster.urls, USER, PASSWORD) as client:
            for number in range(12):
                first = ROWS + number * HOSTS
                body = "".join(
                    f"{at},the host of number {at % HOSTS},1\n" for at in range(first, first + HOSTS)
                )
                assert client.load("web", "visits", f"more-{number}", body.encode(), OPTIONS).status in (
                    "Success",
                    "Publish Timeout",
                )
        seen = answers[0]
        wait_for("an answer after the loads", lambda: answers[0] > seen, TIMEOUT_S)
    finally:
        over.set()
        asking.join()
    assert not wrong
    wait_for(
        "all loads are visible",
        lambda: sum(found[0] for found in grouped(cluster).values()) == ROWS + 12 * HOSTS,
        TIMEOUT_S,
    )
