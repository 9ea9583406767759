"""Two endpoints on one ledger: the second goes on where the first was killed, whatever that was at."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from rtolap.base.errors import Unavailable
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.protocols.stored_tables.client import StoredTablesClient
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import LoadState, SendOptions

from tests.support.hostile.lost_answers import LosingProxy
from tests.support.stored.stream_load_cluster import PASSWORD, TOKEN, USER, StreamLoadCluster
from tests.support.waiting import result_of, until

HITS = TableName("web", "hits")
OPTIONS = SendOptions(format="csv", headers={"column_separator": ","}, timeout_s=60)
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def cluster(owned: None, module_folder: Path) -> Iterator[StreamLoadCluster]:
    folder = module_folder / "masters"
    with StreamLoadCluster(folder, f"sqlite:///{folder / 'ledger.db'}") as running:
        running.start(endpoints=2, nodes=1)
        running.tables.create(
            StoredTable(
                database=HITS.db,
                name=HITS.name,
                columns=(StoredColumn("id", "int", nullable=False), StoredColumn("host", "string")),
                keys=("id",),
            )
        )
        yield running


@pytest.fixture
def client(cluster: StreamLoadCluster) -> Iterator[StreamLoadClient]:
    with StreamLoadClient(cluster.urls, USER, PASSWORD) as made:
        yield made


@pytest.fixture
def killed(cluster: StreamLoadCluster) -> Iterator[Callable[[], int]]:
    """Kill the master; which endpoint that was. It is started again after the test."""
    names: list[str] = []

    def kill() -> int:
        number = cluster.master()
        names.append(f"endpoint-{number}")
        cluster.kill(names[-1])
        return number

    yield kill
    for name in names:
        cluster.restart(name)


def test_each_endpoint_redirects_bodies_to_itself_and_second_phases_to_the_master(
    cluster: StreamLoadCluster,
) -> None:
    follower = 1 - cluster.master()
    other = cluster.urls[follower]
    redirect = httpx.put(f"{other}/api/web/hits/_stream_load", auth=(USER, PASSWORD), content=b"")
    assert redirect.status_code == 307
    assert redirect.headers["location"].startswith(cluster.body_urls[follower])
    second = httpx.put(f"{other}/api/web/_stream_load_2pc", auth=(USER, PASSWORD))
    assert second.headers["location"] == f"{cluster.urls[cluster.master()]}/api/web/_stream_load_2pc"


def test_the_second_phase_finds_the_new_master(
    cluster: StreamLoadCluster, client: StreamLoadClient, killed: Callable[[], int]
) -> None:
    label = uuid.uuid4().hex
    answer = client.load("web", "hits", label, b"10,a\n11,b\n", OPTIONS, two_phase=True)
    assert answer.status == "Success"
    dead = killed()
    assert cluster.master() != dead
    assert _patiently(lambda: client.state("web", label)) is LoadState.PRECOMMITTED
    assert _patiently(lambda: client.commit("web", answer.txn_id)).status == "Success"
    assert client.state("web", label) is LoadState.VISIBLE
    assert [row["id"] for row in cluster.rows(HITS) if row["id"] in (10, 11)] == [10, 11]


def test_a_load_at_the_master_ends_with_it_and_can_be_sent_again(
    cluster: StreamLoadCluster, client: StreamLoadClient, killed: Callable[[], int]
) -> None:
    label = uuid.uuid4().hex

    def body() -> Iterator[bytes]:
        yield b"20,a\n"
        until(lambda: client.state("web", label) is LoadState.PREPARE)
        killed()
        yield b"21,b\n"

    deadline = SendOptions(format="csv", headers=OPTIONS.headers, timeout_s=15)
    master = cluster.urls[cluster.master()]
    with StreamLoadClient([master], USER, PASSWORD) as at_master, pytest.raises(Unavailable):
        at_master.load("web", "hits", label, body(), deadline)
    cluster.master()
    _until(lambda: client.state("web", label) is LoadState.ABORTED)  # at the deadline of the request
    again = _patiently(lambda: client.load("web", "hits", label, b"20,a\n21,b\n", OPTIONS))
    assert again.status == "Success", again
    assert [row["id"] for row in cluster.rows(HITS) if row["id"] in (20, 21)] == [20, 21]


def test_what_was_committed_becomes_visible_under_the_next_master(
    cluster: StreamLoadCluster, client: StreamLoadClient, killed: Callable[[], int]
) -> None:
    """The node is away when the second phase comes: the master can only promise, and dies."""
    label = uuid.uuid4().hex
    answer = client.load("web", "hits", label, b"30,a\n", OPTIONS, two_phase=True)
    cluster.kill("node-0")
    try:
        assert client.commit("web", answer.txn_id).status == "Success"
        assert client.state("web", label) is LoadState.COMMITTED
        dead = killed()
        assert cluster.master() != dead
    finally:
        cluster.restart("node-0")
    _until(lambda: client.state("web", label) is LoadState.VISIBLE)
    assert [row["id"] for row in cluster.rows(HITS) if row["id"] == 30] == [30]


def test_a_truncate_whose_master_died_before_it_answered_erases_nothing_later(
    cluster: StreamLoadCluster, client: StreamLoadClient, killed: Callable[[], int]
) -> None:
    """The successor knows how it was answered; what it has loaded since stays."""
    emptied: list[int] = []

    def meanwhile() -> None:
        emptied.append(cluster.tables.table(HITS).table_id)
        dead = killed()
        assert cluster.master() != dead
        answer = _patiently(lambda: client.load("web", "hits", uuid.uuid4().hex, b"40,a\n", OPTIONS))
        assert answer.status == "Success", answer

    master = cluster.master()
    with LosingProxy(cluster.urls[master]) as wire:
        wire.lose_next(meanwhile)
        with StoredTablesClient([wire.url, cluster.urls[1 - master]], TOKEN, retry_s=TIMEOUT_S) as asking:
            answered = asking.truncate(HITS)
        assert (wire.lost, wire.failures) == (1, [])
    assert [answered.table_id] == emptied == [cluster.tables.table(HITS).table_id]
    assert [row["id"] for row in cluster.rows(HITS)] == [40]


def _until(true: Callable[[], bool]) -> None:
    until(lambda: _patiently(true), timeout_s=TIMEOUT_S, poll_s=0.1)


def _patiently(ask: Callable[[], Any]) -> Any:
    """While nobody is master there is no answer."""
    return result_of(ask, Unavailable, timeout_s=TIMEOUT_S, poll_s=0.1)
