"""Storage nodes as processes: one is killed for good while loads run, another joins, one is drained."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.model.stored.table import Buckets, StoredColumn, StoredTable
from rtolap.protocols.storage.messages import NodeReplicas
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import SendOptions

from tests.support.cubes.services import wait_for
from tests.support.stored.stream_load_cluster import PASSWORD, USER, StreamLoadCluster

OPTIONS = SendOptions(format="csv", headers={"column_separator": ","}, timeout_s=60)
TIMEOUT_S = 120.0
LOST_AFTER_S = 3
BUCKETS = 4


@pytest.fixture
def cluster(owned: None, module_folder: Path) -> Iterator[StreamLoadCluster]:
    folder = module_folder / f"moves-{uuid.uuid4().hex[:8]}"
    settings = {"RTOLAP_STORAGE_NODE_LOST_AFTER_S": str(LOST_AFTER_S)}
    with StreamLoadCluster(folder, f"sqlite:///{folder / 'ledger.db'}", settings=settings) as running:
        yield running


class Loading:
    """Loads one row after another until it is stopped, each until it stands; and counts what it loaded."""

    def __init__(self, cluster: StreamLoadCluster, table: TableName) -> None:
        self._cluster, self._table = cluster, table
        self._stopping = threading.Event()
        self.sums: dict[int, int] = {}
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> dict[int, int]:
        self._stopping.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.sums

    def _run(self) -> None:
        try:
            with StreamLoadClient(self._cluster.urls, USER, PASSWORD) as client:
                for number in itertools.count():
                    if self._stopping.wait(0.05):
                        return
                    self._load(client, number)
        except BaseException as error:  # noqa: BLE001 - for the thread of the test
            self.error = error

    def _load(self, client: StreamLoadClient, number: int) -> None:
        rows = {number % 17: number, 100 + number % 5: 1}
        body = "".join(f"{key},{value}\n" for key, value in rows.items()).encode()
        label = uuid.uuid4().hex
        answer = client.load(self._table.db, self._table.name, label, body, OPTIONS)
        assert answer.status in ("Success", "Publish Timeout"), answer
        for key, value in rows.items():
            self.sums[key] = self.sums.get(key, 0) + value


def create_table(cluster: StreamLoadCluster) -> TableName:
    name = f"t_{uuid.uuid4().hex[:8]}"
    definition = StoredTable(
        database="d",
        name=name,
        model="aggregate",
        keys=("id",),
        columns=(StoredColumn("id", "int", nullable=False), StoredColumn("n", "bigint", aggregate="SUM")),
        buckets=Buckets(BUCKETS),
    )
    cluster.tables.create(definition)
    return TableName("d", name)


def nodes(cluster: StreamLoadCluster) -> dict[str, NodeReplicas]:
    return {each.name: each for each in cluster.tables.storage_moves().nodes}


def is_settled(cluster: StreamLoadCluster, expected: dict[str, int]) -> bool:
    found = cluster.tables.storage_moves()
    return not found.moves and {each.name: each.replicas for each in found.nodes} == expected


def command(cluster: StreamLoadCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rtolap.cli.main", "storage", *arguments],
        env=cluster.environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def rows(cluster: StreamLoadCluster, table: TableName) -> dict[int, int]:
    return {row["id"]: row["n"] for row in cluster.rows(table)}


def test_a_lost_node_is_replaced_another_joins_and_one_is_drained_while_loads_run(
    cluster: StreamLoadCluster,
) -> None:
    cluster.start(endpoints=1, nodes=3)
    table = create_table(cluster)
    loading = Loading(cluster, table)
    wait_for("rows are loaded", lambda: len(loading.sums) > 10, TIMEOUT_S)
    cluster.kill("node-1")  # and it does not come back
    cluster.add_node("node-3")
    wait_for(
        "the lost node is replaced",
        lambda: is_settled(cluster, {"node-0": 4, "node-1": 0, "node-2": 4, "node-3": 4}),
        TIMEOUT_S,
    )
    assert nodes(cluster)["node-1"].state == "lost"
    cluster.kill("node-0")  # the new replicas answer for it, and are asked for loads
    loaded = loading.stop()
    assert rows(cluster, table) == loaded
    cluster.restart("node-0")

    loading = Loading(cluster, table)
    loading.sums = dict(loaded)
    refused = command(cluster, "drain", "node-2")
    assert refused.returncode != 0
    assert "cannot be drained" in refused.stdout + refused.stderr
    cluster.restart("node-1")  # an empty node by now
    wait_for("node-1 takes replicas", lambda: nodes(cluster)["node-1"].state == "open", TIMEOUT_S)
    drained = command(cluster, "drain", "node-2", "--json")
    assert drained.returncode == 0, drained.stderr
    found = {each["name"]: each for each in json.loads(drained.stdout)["nodes"]}
    assert (found["node-2"]["state"], found["node-2"]["replicas"]) == ("draining", 0)
    cluster.kill("node-2")
    shutil.rmtree(cluster.folder / "node-2" / "data")
    loaded = loading.stop()
    assert rows(cluster, table) == loaded


def test_replicas_are_raised_when_nodes_join_and_evened_out(cluster: StreamLoadCluster) -> None:
    cluster.start(endpoints=1, nodes=1)
    table = create_table(cluster)
    with StreamLoadClient(cluster.urls, USER, PASSWORD) as client:
        body = "".join(f"{key},{key}\n" for key in range(5000)).encode()
        assert client.load(table.db, table.name, "one", body, OPTIONS).status == "Success"
        assert nodes(cluster)["node-0"].replicas == BUCKETS
        for name in ("node-1", "node-2"):
            cluster.add_node(name)
        wait_for(
            "replicas are raised",
            lambda: is_settled(cluster, {f"node-{number}": BUCKETS for number in range(3)}),
            TIMEOUT_S,
        )
        cluster.kill("node-0")
        assert client.load(table.db, table.name, "two", b"1,1\n", OPTIONS).status == "Success"
    expected = {key: key + (key == 1) for key in range(5000)}
    assert rows(cluster, table) == expected
    cluster.restart("node-0")
    cluster.add_node("node-3")
    wait_for("all nodes live", lambda: nodes(cluster)["node-0"].state == "open", TIMEOUT_S)
    planned = json.loads(command(cluster, "rebalance", "--plan", "--json").stdout)
    assert planned, "node-3 is empty"
    assert {move["node"] for move in planned} == {"node-3"}
    assert nodes(cluster)["node-3"].replicas == 0
    done = command(cluster, "rebalance", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    found = nodes(cluster)
    assert sum(each.replicas for each in found.values()) == 3 * BUCKETS
    assert found["node-3"].replicas > 0
    assert json.loads(command(cluster, "rebalance", "--json").stdout) == []
    assert rows(cluster, table) == expected
