"""Three storage nodes as processes, killed as by kill -9: loads go on, nothing is lost, nothing half there.

The seed is the test's parameter: RTOLAP_SEEDS=10 and `-k "[7]"` play one that `make soak` has found.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from rtolap.base.errors import NotFound, NotYet, RtolapError, StaleSnapshot, Unavailable
from rtolap.model.stored.table import Buckets, StoredColumn, StoredTable
from rtolap.protocols.storage.client import StorageClient
from rtolap.protocols.storage.messages import ScanRequest, TabletId
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import LoadState, SendOptions

from tests.support.cubes.services import wait_for
from tests.support.seeds import so_many
from tests.support.stored.stream_load_cluster import PASSWORD, TOKEN, USER, StreamLoadCluster
from tests.support.waiting import patience_s

SEEDS = so_many(2)
NODES = ("node-0", "node-1", "node-2")
OPTIONS = SendOptions(format="csv", headers={"column_separator": ","}, timeout_s=60)
BATCHES, KILLS = 8, 3
TIMEOUT_S = 60.0

Rows = dict[int, int]


@pytest.fixture(scope="module")
def cluster(owned: None, module_folder: Path) -> Iterator[StreamLoadCluster]:
    folder = module_folder / "replicas"
    with StreamLoadCluster(folder, f"sqlite:///{folder / 'ledger.db'}") as running:
        running.start(endpoints=1, nodes=len(NODES))
        yield running


@pytest.fixture
def loads(cluster: StreamLoadCluster) -> Iterator[StreamLoadClient]:
    with StreamLoadClient(cluster.urls, USER, PASSWORD) as client:
        yield client


@pytest.fixture
def table(cluster: StreamLoadCluster) -> TableName:
    """Rows of equal ids are summed: a row that counts twice, or not at all, shows."""
    name = f"t_{uuid.uuid4().hex[:8]}"
    definition = StoredTable(
        database="d",
        name=name,
        model="aggregate",
        keys=("id",),
        columns=(StoredColumn("id", "int", nullable=False), StoredColumn("n", "bigint", aggregate="SUM")),
        buckets=Buckets(2),
    )
    cluster.tables.create(definition)
    return TableName("d", name)


def csv(rows: Rows) -> bytes:
    return "".join(f"{key},{n}\n" for key, n in rows.items()).encode()


def kept_by(cluster: StreamLoadCluster, node: str, name: TableName) -> Rows | None:
    """What this one node has of the table, None while it has not all that is visible."""
    (view,) = cluster.tables.read_view((name,)).tables
    found: Rows = {}
    with StorageClient(cluster.processes[node].address, TOKEN) as client:
        for part in view.partitions:
            for tablet in part.tablets:
                tablet_id = TabletId(
                    view.table_id, name.db, name.name, part.range.name, tablet.bucket, part.incarnation
                )
                try:
                    for batch in client.scan(ScanRequest(tablet_id, view.schema, part.version)):
                        found.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
                except (NotYet, NotFound, Unavailable, StaleSnapshot):  # the last: the view has grown old
                    return None
    return found


def caught_up(cluster: StreamLoadCluster, node: str, name: TableName) -> Rows:
    found: Rows | None = None

    def has_all() -> bool:
        nonlocal found
        found = kept_by(cluster, node, name)
        return found is not None

    wait_for(f"{node} has caught up", has_all, TIMEOUT_S)
    assert found is not None
    return found


def test_loads_go_on_without_one_of_three_nodes_and_it_catches_up(
    cluster: StreamLoadCluster, loads: StreamLoadClient, table: TableName
) -> None:
    assert loads.load(table.db, table.name, f"{table.name}-0", csv({1: 1}), OPTIONS).status == "Success"
    cluster.kill("node-1")
    for number in range(2, 6):
        answer = loads.load(table.db, table.name, f"{table.name}-{number}", csv({1: 1, number: 5}), OPTIONS)
        assert answer.status == "Success", answer
    cluster.restart("node-1")
    expected = {1: 5, 2: 5, 3: 5, 4: 5, 5: 5}
    for node in NODES:
        assert caught_up(cluster, node, table) == expected, node


def test_without_a_majority_a_load_is_aborted_and_nothing_is_visible(
    cluster: StreamLoadCluster, loads: StreamLoadClient, table: TableName
) -> None:
    assert loads.load(table.db, table.name, f"{table.name}-0", csv({1: 1}), OPTIONS).status == "Success"
    for node in NODES[1:]:
        cluster.kill(node)
    answer = loads.load(table.db, table.name, f"{table.name}-1", csv({1: 1, 2: 2}), OPTIONS)
    assert answer.status == "Fail"
    assert "succ replica num 1 < quorum replica num 2" in answer.message
    assert loads.state(table.db, f"{table.name}-1") is LoadState.ABORTED
    for node in NODES[1:]:
        cluster.restart(node)
    for node in NODES:
        assert caught_up(cluster, node, table) == {1: 1}, node
    again = loads.load(table.db, table.name, f"{table.name}-1", csv({1: 1, 2: 2}), OPTIONS)
    assert again.status == "Success", again
    for node in NODES:
        assert caught_up(cluster, node, table) == {1: 2, 2: 2}, node


def test_loads_go_on_while_one_of_three_nodes_stands_still(
    cluster: StreamLoadCluster, loads: StreamLoadClient, table: TableName
) -> None:
    """Its machine takes every call and answers none: once its lease is over it is asked no more."""
    pid = cluster.processes["node-1"].pid()
    assert pid is not None

    def lease_is_over() -> bool:
        answer = httpx.get(
            f"{cluster.urls[0]}/api/v1/storage-nodes", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        return not next(node["alive"] for node in answer.json() if node["name"] == "node-1")

    os.kill(pid, signal.SIGSTOP)
    try:
        wait_for("the lease of node-1 is over", lease_is_over, TIMEOUT_S)
        for number in range(5):
            answer = loads.load(table.db, table.name, f"{table.name}-{number}", csv({1: 1}), OPTIONS)
            assert answer.status == "Success", answer
    finally:
        os.kill(pid, signal.SIGCONT)
    for node in NODES:
        assert caught_up(cluster, node, table) == {1: 5}, node


def test_a_node_that_is_told_to_stop_does_not_wait_for_an_open_load(
    cluster: StreamLoadCluster, loads: StreamLoadClient, table: TableName
) -> None:
    node = cluster.processes["node-1"]
    pid = node.pid()
    assert pid is not None
    stopped = threading.Event()
    chunk, sent = csv(dict.fromkeys(range(20_000), 1)), 0

    def body() -> Iterator[bytes]:
        nonlocal sent
        while not stopped.is_set():  # an endpoint reads some megabytes before nodes hear of a load
            sent += 1
            yield chunk

    def stop_in_the_middle() -> None:
        with StorageClient(node.address, TOKEN) as client:
            wait_for("the node has a load", lambda: bool(client.status().loading), TIMEOUT_S)
        os.kill(pid, signal.SIGTERM)
        wait_for("the node has ended", lambda: node.pid() is None, TIMEOUT_S)
        stopped.set()

    stopper = threading.Thread(target=stop_in_the_middle)
    stopper.start()
    answer = loads.load(table.db, table.name, f"{table.name}-0", body(), OPTIONS)
    stopper.join()
    assert answer.status == "Success", answer
    cluster.restart("node-1")
    for name in NODES:
        assert caught_up(cluster, name, table) == dict.fromkeys(range(20_000), sent), name


def damage(data: Path, table_id: int, kind: str) -> set[str]:
    """Flip a bit in the middle of each such file of the table; the names of the tablets."""
    damaged = set()
    for folder in (data / "tablets").glob(f"{table_id}[-.]*"):
        for file in folder.glob(f"g*/{kind}"):
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 1
            file.write_bytes(content)
            damaged.add(folder.name)
    assert damaged
    return damaged


@pytest.mark.parametrize("kind", ["rowsets/*/*.rows", "log-*"])
def test_a_node_whose_files_were_damaged_while_it_was_down_is_made_whole_without_a_load(
    cluster: StreamLoadCluster, loads: StreamLoadClient, table: TableName, kind: str
) -> None:
    for number in range(3):
        answer = loads.load(table.db, table.name, f"{table.name}-{number}", csv({1: 1, number: 5}), OPTIONS)
        assert answer.status == "Success", answer
    expected = {0: 5, 1: 7, 2: 5}
    assert caught_up(cluster, "node-1", table) == expected
    cluster.kill("node-1")
    data = cluster.folder / "node-1" / "data" / "storage" / "node-1"
    damaged = damage(data, cluster.tables.table(table).table_id, kind)
    cluster.restart("node-1")
    assert caught_up(cluster, "node-1", table) == expected
    assert {path.stem for path in (data / "broken").iterdir()} >= damaged, "their bytes are kept"
    answer = loads.load(table.db, table.name, f"{table.name}-3", csv({1: 1}), OPTIONS)
    assert answer.status == "Success", answer
    for node in NODES:
        assert caught_up(cluster, node, table) == expected | {1: 8}, node


class Killer:
    """Kills nodes one after another, each at a moment of its own, and starts each again before the next.

    Draws in a thread of its own, so from a `rng` of its own: what is drawn for a seed is the same each time.
    """

    def __init__(self, cluster: StreamLoadCluster, rng: random.Random) -> None:
        self._cluster, self._random = cluster, rng
        self.killed: list[str] = []
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            for _ in range(KILLS):
                time.sleep(self._random.uniform(0.0, 0.4))  # the moment is what is drawn
                node = self._random.choice(NODES)
                self._cluster.kill(node)
                self.killed.append(node)
                time.sleep(self._random.uniform(0.0, 0.4))
                self._cluster.restart(node)
        except BaseException as error:  # noqa: BLE001 – for the thread of the test
            self.error = error


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(SEEDS))
def test_whenever_nodes_are_killed_every_replica_equals_a_recount(
    cluster: StreamLoadCluster, loads: StreamLoadClient, table: TableName, seed: int
) -> None:
    rng = random.Random(seed)
    expected: Rows = {}
    killer = Killer(cluster, random.Random(f"{seed} kills"))
    number = 0
    while number < BATCHES or killer.running:
        rows = {rng.randint(1, 50): rng.randint(1, 9) for _ in range(rng.randint(1, 40))}
        load_until_it_stands(loads, table, f"{table.name}-{number}", rows)
        for key, n in rows.items():
            expected[key] = expected.get(key, 0) + n
        number += 1
    killer.join()
    assert len(killer.killed) == KILLS
    labels = [f"{table.name}-{each}" for each in range(number)]
    visible = LoadState.VISIBLE
    wait_for(
        "all loads are visible",
        lambda: all(loads.state(table.db, label) is visible for label in labels),
        TIMEOUT_S,
    )
    for node in NODES:
        assert caught_up(cluster, node, table) == expected, f"seed {seed}: {node} after {killer.killed}"


def load_until_it_stands(loads: StreamLoadClient, table: TableName, label: str, rows: Rows) -> None:
    """Under one label, as a loader does: sent again only when it is known not to stand."""
    deadline_s = time.monotonic() + patience_s(TIMEOUT_S)
    while time.monotonic() < deadline_s:
        try:
            answer = loads.load(table.db, table.name, label, csv(rows), OPTIONS)
            if answer.status in ("Success", "Publish Timeout"):
                return
            state = loads.state(table.db, label)
        except RtolapError:
            state = loads.state(table.db, label)
        if state in (LoadState.COMMITTED, LoadState.VISIBLE):
            return
        time.sleep(0.05)
    raise AssertionError(f"label {label} never came to an end")
