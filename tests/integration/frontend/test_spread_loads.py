"""Bodies of loads at every front end and storage node, over the deaths of who takes them and of the master.

Every test counts again: what is visible is what was answered as loaded, each row once.
"""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
from rtolap.base.addresses import host_port
from rtolap.base.errors import Unavailable
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import LoadState, SendOptions

from tests.support.runs.loopback import LOOPBACK
from tests.support.stored.stream_load_cluster import LOOKING_USER, PASSWORD, USER, StreamLoadCluster
from tests.support.waiting import patience_s, result_of, until

AUTH = (USER, PASSWORD)
HEADERS = {"column_separator": ",", "timeout": "60"}
OPTIONS = SendOptions(format="csv", headers={"column_separator": ","}, timeout_s=60)
TIMEOUT_S = 60.0
FRONT_ENDS, NODES = 2, 2


@pytest.fixture(scope="module")
def cluster(owned: None, module_folder: Path) -> Iterator[StreamLoadCluster]:
    folder = module_folder / "spread-loads"
    with StreamLoadCluster(
        folder, f"sqlite:///{folder / 'ledger.db'}", redirect="nodes", host=LOOPBACK
    ) as running:
        running.start(endpoints=FRONT_ENDS, nodes=NODES, nodes_take_bodies=True)
        yield running


@pytest.fixture
def table(cluster: StreamLoadCluster, unique_name: str) -> TableName:
    """A duplicate table of two buckets: a row that was loaded twice is there twice."""
    name = f"t_{unique_name[-8:]}"
    columns = (StoredColumn("id", "int", nullable=False), StoredColumn("host", "string"))
    cluster.tables.create(StoredTable(database="web", name=name, columns=columns, keys=("id",)))
    return TableName("web", name)


@pytest.fixture
def killed(cluster: StreamLoadCluster) -> Iterator[Callable[[str], None]]:
    """Kill a process by name. It is started again after the test."""
    names: list[str] = []

    def kill(name: str) -> None:
        names.append(name)
        cluster.kill(name)

    yield kill
    for name in names:
        cluster.restart(name)


@pytest.fixture
def client(cluster: StreamLoadCluster) -> Iterator[StreamLoadClient]:
    with StreamLoadClient(cluster.urls, USER, PASSWORD) as made:
        yield made


def doors(cluster: StreamLoadCluster) -> list[str]:
    return [*cluster.body_urls, *cluster.node_body_urls]


def put(door: str, table: TableName, label: str, body: Any, **headers: str) -> dict[str, Any]:
    """Put a body at one process. Raises httpx.TransportError where that dies."""
    response = httpx.put(
        f"{door}/api/{table.db}/{table.name}/_stream_load",
        content=body,
        headers={**HEADERS, "label": label, **headers},
        auth=AUTH,
        timeout=patience_s(TIMEOUT_S),
    )
    assert response.status_code == 200, response.text
    return dict(response.json())


def ids(cluster: StreamLoadCluster, table: TableName) -> list[int]:
    return sorted(row["id"] for row in cluster.rows(table))


def rows(*numbers: int) -> bytes:
    return b"".join(b"%d,a\n" % number for number in numbers)


class HeldBody:
    """A body whose first half is sent at once, and the second when it is released."""

    def __init__(self, first: bytes, second: bytes) -> None:
        self._first, self._second = first, second
        self.released = Event()

    def __iter__(self) -> Iterator[bytes]:
        yield self._first
        assert self.released.wait(patience_s(TIMEOUT_S))
        yield self._second


def test_every_front_end_and_every_node_takes_bodies(cluster: StreamLoadCluster, table: TableName) -> None:
    for number, door in enumerate(doors(cluster)):
        answer = put(door, table, uuid.uuid4().hex, rows(2 * number, 2 * number + 1))
        assert (answer["Status"], answer["NumberLoadedRows"]) == ("Success", 2), answer
    assert ids(cluster, table) == list(range(2 * len(doors(cluster))))


def test_a_door_that_is_killed_ends_its_own_body_alone(
    cluster: StreamLoadCluster,
    table: TableName,
    client: StreamLoadClient,
    killed: Callable[[str], None],
) -> None:
    """A follower and a node are killed in the middle of a body; those at the others succeed."""
    follower = 1 - cluster.master()
    dying = {cluster.body_urls[follower]: f"endpoint-{follower}", cluster.node_body_urls[1]: "node-1"}
    bodies = {door: HeldBody(rows(2 * n), rows(2 * n + 1)) for n, door in enumerate(doors(cluster))}
    labels = {door: uuid.uuid4().hex for door in bodies}
    with ThreadPoolExecutor(len(bodies)) as pool:
        answers = {
            door: pool.submit(put, door, table, labels[door], body, timeout="8")
            for door, body in bodies.items()
        }
        for label in labels.values():
            until(lambda: state(client, label) is LoadState.PREPARE, timeout_s=TIMEOUT_S)  # noqa: B023
        killed(dying[cluster.body_urls[follower]])
        bodies[cluster.body_urls[follower]].released.set()
        with pytest.raises(httpx.TransportError):
            answers[cluster.body_urls[follower]].result()
        survivors = [door for door in bodies if door not in dying]
        for door in survivors:
            bodies[door].released.set()
            assert answers[door].result()["Status"] == "Success", answers[door].result()
        killed("node-1")
        bodies[cluster.node_body_urls[1]].released.set()
        with pytest.raises(httpx.TransportError):
            answers[cluster.node_body_urls[1]].result()
    for door in dying:  # by the deadline of the request
        until(lambda: state(client, labels[door]) is LoadState.ABORTED, timeout_s=TIMEOUT_S)  # noqa: B023
    cluster.restart("node-1")
    order = list(bodies)
    assert ids(cluster, table) == sorted(
        row for door in survivors for row in (2 * order.index(door), 2 * order.index(door) + 1)
    )
    again = client.load("web", table.name, labels[cluster.node_body_urls[1]], rows(100), OPTIONS)
    assert again.status == "Success", again
    assert 100 in ids(cluster, table)


@pytest.mark.parametrize("door", ["front end", "node"])
def test_a_body_outlives_the_master(
    cluster: StreamLoadCluster,
    table: TableName,
    killed: Callable[[str], None],
    client: StreamLoadClient,
    door: str,
) -> None:
    master = cluster.master()
    url = cluster.body_urls[1 - master] if door == "front end" else cluster.node_body_urls[0]
    label, body = uuid.uuid4().hex, HeldBody(rows(1), rows(2))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(put, url, table, label, body)
        until(lambda: state(client, label) is LoadState.PREPARE, timeout_s=TIMEOUT_S)
        killed(f"endpoint-{master}")
        body.released.set()
        assert answer.result()["Status"] in ("Success", "Publish Timeout"), answer.result()
    until(lambda: state(client, label) is LoadState.VISIBLE, timeout_s=TIMEOUT_S)
    again = put(url, table, label, rows(1, 2))
    assert (again["Status"], again["ExistingJobStatus"]) == ("Label Already Exists", "FINISHED")
    assert ids(cluster, table) == [1, 2]


def test_one_label_at_all_doors_at_once_is_loaded_once(cluster: StreamLoadCluster, table: TableName) -> None:
    loaded = []
    for number in range(3):
        label = uuid.uuid4().hex
        with ThreadPoolExecutor(len(doors(cluster))) as pool:
            answers = list(pool.map(lambda door: put(door, table, label, rows(number)), doors(cluster)))  # noqa: B023
        statuses = sorted(answer["Status"] for answer in answers)
        assert statuses == ["Label Already Exists"] * (len(answers) - 1) + ["Success"], answers
        assert {answer.get("ExistingJobStatus") for answer in answers} <= {None, "RUNNING", "FINISHED"}
        winner = next(answer for answer in answers if answer["Status"] == "Success")
        others = [answer["Message"] for answer in answers if answer is not winner]
        assert all(f"has already been used, relate to txn [{winner['TxnId']}]" in each for each in others)
        loaded.append(number)
    assert ids(cluster, table) == loaded


def test_a_redirect_to_a_node_is_followed(
    cluster: StreamLoadCluster, table: TableName, client: StreamLoadClient, tmp_path: Path
) -> None:
    """By curl and by the project's client; all nodes get their turn."""
    path = f"/api/web/{table.name}/_stream_load"
    found = set()
    for _ in range(2 * NODES):
        response = httpx.put(cluster.urls[0] + path, auth=AUTH, headers=HEADERS, content=b"")
        assert response.status_code == 307
        found.add(response.headers["location"].removesuffix(path))
    assert found == set(cluster.node_body_urls)
    backends = httpx.get(f"{cluster.urls[0]}/api/backends", auth=AUTH).json()["data"]["backends"]
    assert {
        f"http://{host_port(one['ip'], one['http_port'])}" for one in backends if one["is_alive"]
    } == found
    (tmp_path / "rows.csv").write_bytes(rows(1, 2))
    for url in cluster.urls:
        command = [
            "curl",
            "-sS",
            "--location-trusted",
            "-u",
            f"{USER}:{PASSWORD}",
            "-T",
            tmp_path / "rows.csv",
        ]
        command += ["-H", "Expect: 100-continue", "-H", "column_separator: ,", url + path]
        answered = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=120).stdout)
        assert answered["Status"] == "Success", answered
    assert client.load("web", table.name, uuid.uuid4().hex, rows(3), OPTIONS).status == "Success"
    assert ids(cluster, table) == [1, 1, 2, 2, 3]


def test_two_phases_begun_at_a_node_are_committed_there(cluster: StreamLoadCluster, table: TableName) -> None:
    """A connector sends the second phase where it has sent the body: the node sends it on to the master."""
    for number, door in enumerate(doors(cluster)):
        answer = put(door, table, uuid.uuid4().hex, rows(number), two_phase_commit="true")
        assert answer["Status"] == "Success", answer
        url = f"{door}/api/web/_stream_load_2pc"
        for _ in range(4):
            operation = {"txn_id": str(answer["TxnId"]), "txn_operation": "commit"}
            second = httpx.put(url, headers=operation, auth=AUTH, timeout=TIMEOUT_S)
            if second.status_code != 307:
                break
            url = second.headers["location"]
        assert second.json()["status"] == "Success", second.text
    assert ids(cluster, table) == list(range(len(doors(cluster))))


def test_a_node_refuses_whom_a_front_end_refuses(cluster: StreamLoadCluster, table: TableName) -> None:
    for door in doors(cluster):
        url = f"{door}/api/web/{table.name}/_stream_load"
        for auth, status in (((USER, "wrong"), 401), ((LOOKING_USER, PASSWORD), 403), (None, 401)):
            refused = httpx.put(url, content=rows(1), headers=HEADERS, auth=auth, timeout=TIMEOUT_S)
            assert refused.status_code == status, refused.text
        token = {"authorization": "Bearer something", **HEADERS}
        assert httpx.put(url, content=rows(1), headers=token, timeout=TIMEOUT_S).status_code == 401
    assert ids(cluster, table) == []


def test_rejected_rows_are_read_where_they_were_rejected(
    cluster: StreamLoadCluster, table: TableName
) -> None:
    for door in doors(cluster):
        answer = put(door, table, uuid.uuid4().hex, b"no number,a\n", strict_mode="true")
        assert answer["Status"] == "Fail"
        assert answer["ErrorURL"].startswith(f"{door}/api/_load_error_log?file=")
        assert "no number" in httpx.get(answer["ErrorURL"]).text
    assert ids(cluster, table) == []


def state(client: StreamLoadClient, label: str) -> LoadState:
    asked: LoadState = result_of(
        lambda: client.state("web", label), Unavailable, timeout_s=TIMEOUT_S, poll_s=0.1
    )
    return asked
