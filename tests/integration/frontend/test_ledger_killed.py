"""The ledger on MariaDB, killed with the endpoint and the node in turn: each row is there once, and SQL goes
on.

A client does what a loader does: it asks what became of a label before it sends again, under the same one.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from rtolap.base.errors import Refused, RtolapError
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import LoadState, SendOptions
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.servers.mariadb import mariadb_spec

from tests.support.stored.stored_cluster import StoredCluster
from tests.support.stored.stream_load_cluster import PASSWORD, USER
from tests.support.waiting import until

SEED = int(os.environ.get("RTOLAP_TEST_SEED", "1"))
LOADS = 24
ROWS = 50
TIMEOUT_S = 90.0
AWAY_S = 1.0
HITS = TableName("web", "hits")
OPTIONS = SendOptions(format="csv", headers={"column_separator": ","}, timeout_s=5)
SECRET = "kept-in-a-file"


@pytest.fixture(scope="module")
def cluster(owned: None, module_folder: Path, zookeeper: str) -> Iterator[StoredCluster]:
    folder = module_folder / "killed"
    folder.mkdir()
    (folder / "password").write_text(SECRET)
    spec = mariadb_spec(folder / "mariadb", free_port(), databases=("loads",), users={"rtolap": SECRET})
    database = ManagedProcess(spec)
    try:
        database.start()
        address = f"mysql://rtolap@{database.address}/loads"
        with StoredCluster(folder / "cluster", address, folder / "password") as running:
            running.start(endpoints=1, nodes=1)
            running.start_query(zookeeper, f"/killed-{uuid.uuid4().hex}")
            running.processes["mariadb"] = database
            yield running
    finally:
        database.stop()


def test_every_row_is_there_once_whatever_is_killed(cluster: StoredCluster) -> None:
    chosen = random.Random(SEED)
    columns = "id int not null, label varchar(20)"
    cluster.ask(f"create table web.hits ({columns}) duplicate key(id) distributed by hash(id) buckets 2")
    with StreamLoadClient(cluster.urls, USER, PASSWORD) as client, ThreadPoolExecutor(3) as pool:
        loads = [pool.submit(load_once, client, number, number % 2 == 0) for number in range(LOADS)]
        for name in chosen.sample(["mariadb", "endpoint-0", "node-0"], 3):
            done = sum(load.done() for load in loads)
            wait_for_done(loads, min(done + 2, LOADS))  # in the midst of the others
            cluster.kill(name)
            cluster.restart(name)
        for load in loads:
            load.result()
    expected = [number * ROWS + row for number in range(LOADS) for row in range(ROWS)]
    assert sorted(row["id"] for row in cluster.rows(HITS)) == expected, f"seed {SEED}"
    found = cluster.ask("select count(*), count(distinct id), count(distinct label) from web.hits")
    assert found == [(LOADS * ROWS, LOADS * ROWS, LOADS)]


@pytest.mark.parametrize("victim", ["mariadb", "endpoint-0"])
def test_definitions_wait_while_the_ledger_or_the_endpoint_is_away(
    cluster: StoredCluster, victim: str
) -> None:
    """CREATE, ALTER and DROP are asked for while nobody can do them, and done once somebody can."""
    database, columns = f"without_{victim.replace('-', '_')}", "id int not null, n int"
    for name in ("changed", "dropped"):
        cluster.ask(f"create table {database}.{name} ({columns}) duplicate key(id)")
    statements = (
        f"create table {database}.created ({columns}) unique key(id)",
        f"alter table {database}.changed add column note int default '5'",
        f"drop table {database}.dropped",
    )
    cluster.kill(victim)
    with ThreadPoolExecutor(len(statements)) as pool:
        asked = [pool.submit(cluster.ask, sql) for sql in statements]
        done, _ = wait(asked, AWAY_S)
        assert not done, "nobody could do it"
        cluster.restart(victim)
        for each in asked:
            each.result()
    assert {name for (name,) in cluster.ask(f"show tables from {database}")} == {"changed", "created"}
    assert [name for name, *_ in cluster.ask(f"describe {database}.changed")] == ["id", "n", "note"]
    with StreamLoadClient(cluster.urls, USER, PASSWORD) as client:
        assert client.load(database, "created", f"{database}-1", b"1,1\n1,2\n", OPTIONS).status == "Success"
    assert cluster.ask(f"select id, n from {database}.created") == [(1, 2)]


def wait_for_done(loads: list[Future[None]], count: int) -> None:
    until(lambda: sum(load.done() for load in loads) >= count, f"{count} loads", timeout_s=TIMEOUT_S)


def load_once(client: StreamLoadClient, number: int, two_phase: bool) -> None:
    """Send the load under its label until the label is VISIBLE."""
    label = f"load-{number}"
    body = b"".join(b"%d,%s\n" % (number * ROWS + row, label.encode()) for row in range(ROWS))

    def is_visible() -> bool:
        try:
            match client.state("web", label):
                case LoadState.VISIBLE:
                    return True
                case LoadState.UNKNOWN | LoadState.ABORTED:
                    client.load("web", "hits", label, body, OPTIONS, two_phase=two_phase)
                case LoadState.PRECOMMITTED:
                    client.commit_label("web", label)
                case LoadState.PREPARE | LoadState.COMMITTED:
                    pass  # it is aborted at its deadline, or becomes visible
        except Refused:
            raise
        except RtolapError:
            pass  # nobody answers; the request may have been carried out
        return False

    until(is_visible, f"{label} is visible", timeout_s=TIMEOUT_S, poll_s=0.1)
