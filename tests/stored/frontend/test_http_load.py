"""The endpoint over real sockets: answers, redirects, transactions; what goes wrong is seen by nobody."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest
from fastapi import FastAPI
from rtolap.base.errors import Forbidden
from rtolap.model.stored.partitions import partition_of
from rtolap.model.stored.table import RangePartitions, StoredColumn, StoredTable
from rtolap.protocols.stored_tables.messages import AddPartition
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import SendOptions
from rtolap.servers.limits import HttpLimits
from rtolap.stored.bodies.batches import DecodedBatch
from rtolap.stored.bodies.decode import decode_body
from rtolap.stored.frontend.assembly import FrontendOptions
from rtolap.stored.metastore.records import BeginRequest, Tablet, Transaction
from rtolap.stored.stream_load import error_files, group_commit
from rtolap.stored.stream_load import load as one_load
from rtolap.stored.stream_load.body_pipe import BYTES_MAX
from rtolap.stored.stream_load.ports import Port
from rtolap.stored.stream_load.request import TIMEOUT_S_DEFAULT

from tests.support import http_calls
from tests.support.stored.load_endpoint import (
    ASKING_USER,
    DEFINING_USER,
    OTHER_USER,
    PASSWORD,
    TOKEN,
    USER,
    LoadEndpoint,
    load_endpoint,
)
from tests.support.waiting import until

HITS = StoredTable(
    database="web",
    name="hits",
    columns=(
        StoredColumn("id", "int", nullable=False),
        StoredColumn("host", "string"),
        StoredColumn("amount", "decimal(10,2)"),
    ),
    keys=("id",),
)

AUTH = httpx.BasicAuth(USER, PASSWORD)
FIELDS = [
    "TxnId",
    "Label",
    "Comment",
    "TwoPhaseCommit",
    "Status",
    "Message",
    "NumberTotalRows",
    "NumberLoadedRows",
    "NumberFilteredRows",
    "NumberUnselectedRows",
    "LoadBytes",
    "LoadTimeMs",
    "BeginTxnTimeMs",
    "StreamLoadPutTimeMs",
    "ReadDataTimeMs",
    "WriteDataTimeMs",
    "CommitAndPublishTimeMs",
]


def put(endpoint: LoadEndpoint, body: object, table: str = "hits", **headers: str) -> dict[str, object]:
    named = {name.replace("__", "."): value for name, value in headers.items()}
    response = http_calls.put(
        f"{endpoint.body_url}/api/web/{table}/_stream_load",
        content=body,  # type: ignore[arg-type]
        headers={"column_separator": ",", **named},
        auth=AUTH,
        timeout=60,  # the first load of a process takes seconds
    )
    assert response.status_code == 200, response.text
    assert response.content.endswith(b"\n")
    return dict(msgspec.json.decode(response.content))


def state(endpoint: LoadEndpoint, label: str) -> str:
    url = f"{endpoint.url}/api/web/get_load_state"
    return str(http_calls.get(url, params={"label": label}, auth=AUTH).json()["data"])


def second_phase(endpoint: LoadEndpoint, auth: tuple[str, str] = AUTH, **headers: str) -> dict[str, str]:
    response = http_calls.put(f"{endpoint.url}/api/web/_stream_load_2pc", headers=headers, auth=auth)
    assert response.status_code == 200
    return dict(response.json())


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadEndpoint]:
    with load_endpoint(Path(tmp_path_factory.mktemp("endpoint"))) as running:
        running.assembly.catalogue.create_table(HITS)
        yield running


@pytest.fixture(autouse=True)
def short_login_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have tests of their own."""
    monkeypatch.setattr("rtolap.base.users.FIRST_DELAY_S", 0.001)
    monkeypatch.setattr("rtolap.base.users.DELAY_MAX_S", 0.01)


@pytest.fixture
def label() -> str:
    return uuid.uuid4().hex


def ids(endpoint: LoadEndpoint) -> set[int]:
    return {row["id"] for row in endpoint.rows("web", "hits")}


def test_a_load_is_visible_when_it_is_answered(endpoint: LoadEndpoint, label: str) -> None:
    answer = put(endpoint, b"1,a,1.50\n2,\\N,\n", label=label, comment="first")
    assert (answer["Status"], answer["Message"]) == ("Success", "OK")
    assert list(answer) == FIELDS
    assert (answer["Label"], answer["Comment"], answer["TwoPhaseCommit"]) == (label, "first", "false")
    assert (answer["NumberTotalRows"], answer["NumberLoadedRows"], answer["LoadBytes"]) == (2, 2, 15)
    assert {1, 2} <= ids(endpoint)
    assert state(endpoint, label) == "VISIBLE"


def test_a_used_label_is_answered_with_what_became_of_it(endpoint: LoadEndpoint, label: str) -> None:
    first = put(endpoint, b"10,a,1\n", label=label)
    again = put(endpoint, b"11,a,1\n", label=label)
    assert again["Status"] == "Label Already Exists"
    assert again["ExistingJobStatus"] == "FINISHED"
    assert f"Label [{label}] has already been used, relate to txn [{first['TxnId']}]" in str(again["Message"])
    assert list(again) == [*FIELDS[:5], "ExistingJobStatus", *FIELDS[5:]]
    assert 11 not in ids(endpoint)


def test_two_phases_are_seen_after_the_second(endpoint: LoadEndpoint, label: str) -> None:
    answer = put(endpoint, b"20,a,1\n", label=label, two_phase_commit="true")
    txn_id = str(answer["TxnId"])
    assert (answer["Status"], answer["TwoPhaseCommit"]) == ("Success", "true")
    assert state(endpoint, label) == "PRECOMMITTED"
    assert 20 not in ids(endpoint)
    used = put(endpoint, b"", label=label, two_phase_commit="true")
    assert (used["ExistingJobStatus"], used["TwoPhaseCommit"]) == ("PRECOMMITTED", "true")
    done = second_phase(endpoint, txn_id=txn_id, txn_operation="commit")
    assert done == {"status": "Success", "msg": f"transaction [{txn_id}] commit successfully."}
    assert state(endpoint, label) == "VISIBLE"
    assert 20 in ids(endpoint)
    again = second_phase(endpoint, txn_id=txn_id, txn_operation="commit")
    assert again["status"] == "Fail"
    assert again["msg"].endswith(f"transaction [{txn_id}] is already visible, not pre-committed.")


def test_an_aborted_label_can_be_used_again(endpoint: LoadEndpoint, label: str) -> None:
    put(endpoint, b"30,a,1\n", label=label, two_phase_commit="true")
    assert second_phase(endpoint, label=label, txn_operation="abort")["status"] == "Success"
    assert state(endpoint, label) == "ABORTED"
    assert 30 not in ids(endpoint)
    assert put(endpoint, b"31,a,1\n", label=label)["Status"] == "Success"
    assert 31 in ids(endpoint)


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"txn_id": "987654321", "txn_operation": "commit"}, "transaction [987654321] not found"),
        ({"txn_id": "x", "txn_operation": "commit"}, "convert txn_id [x] failed"),
        ({"txn_id": "1", "txn_operation": "rollback"}, "should be 'commit' or 'abort'"),
        ({"txn_operation": "abort"}, "either txn_id or label"),
        ({"label": "never", "txn_operation": "abort"}, "transaction with label [never] not found"),
    ],
)
def test_a_second_phase_of_nothing_says_so(
    endpoint: LoadEndpoint, headers: dict[str, str], says: str
) -> None:
    answer = second_phase(endpoint, **headers)
    assert answer["status"] == "Fail"
    assert says in answer["msg"]


def test_an_empty_body_is_a_load_of_no_rows(endpoint: LoadEndpoint, label: str) -> None:
    answer = put(endpoint, b"", label=label, two_phase_commit="true")
    assert (answer["Status"], answer["NumberTotalRows"]) == ("Success", 0)
    assert second_phase(endpoint, txn_id=str(answer["TxnId"]), txn_operation="abort")["status"] == "Success"


def test_too_many_refused_rows_fail_the_load_and_can_be_read(endpoint: LoadEndpoint, label: str) -> None:
    answer = put(endpoint, b"40,a,1\nforty,a,1\n41,b,2\n", label=label)
    assert answer["Status"] == "Fail"
    assert "too many filtered rows" in str(answer["Message"])
    assert (answer["NumberTotalRows"], answer["NumberLoadedRows"], answer["NumberFilteredRows"]) == (3, 0, 1)
    assert state(endpoint, label) == "ABORTED"
    assert not {40, 41} & ids(endpoint)
    log = http_calls.get(str(answer["ErrorURL"]))
    assert "forty" in log.text
    assert log.text.startswith("Reason: ")
    assert log.text.count("\n") == 1
    tolerant = put(endpoint, b"40,a,1\nforty,a,1\n41,b,2\n", label=label, max_filter_ratio="0.4")
    assert (tolerant["Status"], tolerant["NumberLoadedRows"]) == ("Success", 2)
    assert {40, 41} <= ids(endpoint)
    assert "forty" in http_calls.get(str(tolerant["ErrorURL"])).text


class _FullDisk(io.BytesIO):
    """A file that takes what it is given, or not, and has no room for it when it is closed."""

    def __init__(self, *, takes: bool) -> None:
        super().__init__()
        self._takes = takes

    def flush(self) -> None:
        if not self._takes:
            raise OSError(errno.ENOSPC, "No space left on device")

    def close(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(("ratio", "status"), [("0.9", "Success"), ("0", "Fail")])
def test_an_error_file_that_cannot_be_closed_changes_nothing(
    endpoint: LoadEndpoint, label: str, monkeypatch: pytest.MonkeyPatch, ratio: str, status: str
) -> None:
    monkeypatch.setattr(error_files, "open", lambda path, mode: _FullDisk(takes=True), raising=False)
    answer = put(endpoint, b"x,a,1\n35,a,1\n", label=label, max_filter_ratio=ratio)
    assert (answer["Status"], answer["NumberFilteredRows"]) == (status, 1)
    assert state(endpoint, label) == ("VISIBLE" if status == "Success" else "ABORTED")


def test_without_room_for_refused_rows_the_load_fails_and_its_label_is_free(
    endpoint: LoadEndpoint, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(error_files, "open", lambda path, mode: _FullDisk(takes=False), raising=False)
        answer = put(endpoint, b"x,a,1\n36,a,1\n", label=label, max_filter_ratio="0.9")
        assert answer["Status"] == "Fail"
        assert "rejected rows cannot be kept" in str(answer["Message"])
        assert state(endpoint, label) == "ABORTED"
    assert put(endpoint, b"x,a,1\n37,a,1\n", label=label, max_filter_ratio="0.9")["Status"] == "Success"
    assert not {36} & ids(endpoint)


def test_a_time_without_a_partition_refuses_its_row_and_says_why(endpoint: LoadEndpoint, label: str) -> None:
    definition = StoredTable(
        database="web",
        name="by_day",
        columns=(StoredColumn("at", "date", nullable=False), StoredColumn("id", "int")),
        partitions=RangePartitions("at", "day", ahead=0, retention_ms=30 * 86_400_000),
    )
    endpoint.assembly.catalogue.create_table(definition)
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date()
    body = f"{tomorrow},1\n9999-12-31,2\n1970-01-01,3\n10000-01-01,4\n".encode()
    answer = put(endpoint, body, "by_day", label=label, max_filter_ratio="0.9")
    assert (answer["Status"], answer["NumberLoadedRows"], answer["NumberFilteredRows"]) == ("Success", 1, 3)
    assert [row["id"] for row in endpoint.rows("web", "by_day")] == [1]
    log = http_calls.get(str(answer["ErrorURL"])).text
    assert log.count("\n") == 3
    (beyond,) = [line for line in log.splitlines() if "9999-12-31" in line]
    assert "beyond the calendar, years 1 to 9998" in beyond
    (old,) = [line for line in log.splitlines() if "1970-01-01" in line]
    assert "retention has passed it" in old
    assert "10000-01-01" in log


def test_loads_into_a_table_without_partitions_on_demand_make_none(
    endpoint: LoadEndpoint, label: str
) -> None:
    definition = StoredTable(
        database="web",
        name="made_ahead",
        columns=(StoredColumn("at", "date", nullable=False), StoredColumn("id", "int")),
        partitions=RangePartitions("at", "day", ahead=0, on_demand=False),
    )
    endpoint.assembly.catalogue.create_table(definition)
    (today,) = endpoint.assembly.catalogue.table("web", "made_ahead").partitions
    beyond = partition_of(today.start_ms + 5 * 86_400_000, "day")
    days = [datetime.fromtimestamp(part.start_ms / 1000, UTC).date() for part in (today, beyond)]
    body = "".join(f"{day},{number}\n" for number, day in enumerate(days)).encode()
    answer = put(endpoint, body, "made_ahead", label=label, max_filter_ratio="0.5")
    assert (answer["Status"], answer["NumberLoadedRows"], answer["NumberFilteredRows"]) == ("Success", 1, 1)
    assert "no partition for this tuple: none is there" in http_calls.get(str(answer["ErrorURL"])).text
    asked = AddPartition(beyond.name, beyond.start_ms, beyond.end_ms)
    endpoint.assembly.catalogue.add_partition("web", "made_ahead", asked)
    assert put(endpoint, body, "made_ahead", label=f"{label}-2")["NumberLoadedRows"] == 2
    assert [row["id"] for row in endpoint.rows("web", "made_ahead")].count(1) == 1


def test_a_load_takes_partitions_that_are_made_while_it_runs(endpoint: LoadEndpoint, label: str) -> None:
    definition = StoredTable(
        database="web",
        name="made_meanwhile",
        columns=(StoredColumn("at", "date", nullable=False), StoredColumn("id", "int")),
        partitions=RangePartitions("at", "day", ahead=0, on_demand=False),
    )
    catalogue = endpoint.assembly.catalogue
    catalogue.create_table(definition)
    there = partition_of(time.time_ns() // 1_000_000 + 5 * 86_400_000, "day")
    day = f"{there.name[1:5]}-{there.name[5:7]}-{there.name[7:]}"

    def body() -> Iterator[bytes]:
        yield b"#" * 10 + b"\n"
        until(lambda: state(endpoint, label) == "PREPARE")
        catalogue.add_partition(
            "web", "made_meanwhile", AddPartition(there.name, there.start_ms, there.end_ms)
        )
        yield f"{day},7\n".encode()

    answer = put(endpoint, body(), "made_meanwhile", label=label, skip_lines="1")
    assert (answer["Status"], answer["NumberLoadedRows"]) == ("Success", 1)
    assert [row["id"] for row in endpoint.rows("web", "made_meanwhile")] == [7]


def test_an_error_file_has_no_name_to_be_guessed(endpoint: LoadEndpoint) -> None:
    for name in ("", "../ledger.db", "a" * 32, "%2e%2e%2fledger.db"):
        response = http_calls.get(f"{endpoint.url}/api/_load_error_log", params={"file": name})
        assert response.status_code == 404


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"format": "xml"}, "header format"),
        ({"timeout": "0"}, "header timeout"),
        ({"timeout": "soon"}, "header timeout"),
        ({"two_phase_commit": "maybe"}, "header two_phase_commit"),
        ({"label": "no blanks"}, "Label format error"),
        ({"label": "x" * 129}, "Label format error"),
        ({"max_filter_ratio": "2"}, "header max_filter_ratio"),
        ({"group_commit": "sync_mode", "label": "x"}, "label and group_commit can't be set at the same time"),
        (
            {"group_commit": "sync_mode", "keep_label": "until_acknowledged"},
            "keep_label and group_commit can't be set at the same time",
        ),
        ({"keep_label": "yes"}, "header keep_label"),
        ({"not_after_ms": "soon"}, "header not_after_ms"),
        ({"not_after_ms": "1"}, "comes too late"),
        ({"where": "nowhere > 1"}, "nowhere"),
        ({"partitions": "p1999"}, "header partitions"),
    ],
)
def test_wrong_headers_are_named(endpoint: LoadEndpoint, headers: dict[str, str], says: str) -> None:
    answer = put(endpoint, b"50,a,1\n", **headers)
    assert answer["Status"] == "Fail"
    assert says in str(answer["Message"])
    assert 50 not in ids(endpoint)


def test_headers_are_read_as_utf_8(endpoint: LoadEndpoint, label: str) -> None:
    response = http_calls.put(
        f"{endpoint.body_url}/api/web/hits/_stream_load",
        content="51,ü,1\n52,u,1\n".encode(),
        headers={"column_separator": ",", "label": label, "where": "host = 'ü'".encode()},  # type: ignore[dict-item]
        auth=AUTH,
    )
    assert response.json()["NumberUnselectedRows"] == 1, response.text
    assert [row["id"] for row in endpoint.rows("web", "hits") if row["host"] == "ü"] == [51]


def test_an_unknown_table_is_named_and_begins_nothing(endpoint: LoadEndpoint, label: str) -> None:
    answer = put(endpoint, b"1,a,1\n", table="misses", label=label)
    assert answer["Status"] == "Fail"
    assert "unknown table, tableName=misses" in str(answer["Message"])
    assert answer["TxnId"] == -1
    assert state(endpoint, label) == "UNKNOWN"


def _raw_basic(value: bytes) -> Callable[[httpx.Request], httpx.Request]:
    def auth(request: httpx.Request) -> httpx.Request:
        request.headers = httpx.Headers([*request.headers.raw, (b"Authorization", b"Basic " + value)])
        return request

    return auth


@pytest.mark.parametrize(
    "auth",
    [
        None,
        httpx.BasicAuth(USER, "wrong"),
        httpx.BasicAuth("nobody", PASSWORD),
        _raw_basic(b"\xe9"),
        _raw_basic(b"/w=="),
        _raw_basic(b"==="),
    ],
)
def test_wrong_credentials_get_nowhere(endpoint: LoadEndpoint, auth: httpx.Auth | None) -> None:
    for path, method in (
        ("/api/web/hits/_stream_load", "PUT"),
        ("/api/web/_stream_load_2pc", "PUT"),
        ("/api/web/get_load_state?label=x", "GET"),
        ("/api/web/hits/_schema", "GET"),
        ("/api/backends", "GET"),
        ("/api/v1/stored-tables", "GET"),
        ("/metrics", "GET"),
    ):
        response = http_calls.request(method, endpoint.url + path, auth=auth)  # type: ignore[arg-type]
        assert response.status_code == 401, path
        assert "WWW-Authenticate" in response.headers


def test_loading_wants_the_right_to_load(endpoint: LoadEndpoint, label: str) -> None:
    """Who has it not may look, and changes nothing; who may define tables may load as well."""
    asking, defining = (httpx.BasicAuth(name, PASSWORD) for name in (ASKING_USER, DEFINING_USER))
    put(endpoint, b"60,a,1\n", label=label, two_phase_commit="true")
    for method, path, headers in (
        ("PUT", "/api/web/hits/_stream_load", {"label": f"{label}-refused"}),
        ("PUT", "/api/web/_stream_load_2pc", {"label": label, "txn_operation": "commit"}),
        ("PUT", "/api/web/_acknowledge_labels", {}),
        ("PUT", f"/api/web/_close_label?label={label}", {}),
    ):
        for url in (endpoint.url, endpoint.body_url):
            response = http_calls.request(
                method, url + path, headers=headers, content=b"61,a,1\n", auth=asking
            )
            assert response.status_code == 403, path
            assert response.json()["code"] == "forbidden"
            assert f"user {ASKING_USER} has not the right to load" in response.json()["msg"]
    assert state(endpoint, label) == "PRECOMMITTED"
    assert state(endpoint, f"{label}-refused") == "UNKNOWN"
    schema = http_calls.get(f"{endpoint.url}/api/web/hits/_schema", auth=asking)
    assert schema.status_code == 200
    with StreamLoadClient((endpoint.url,), ASKING_USER, PASSWORD) as client, pytest.raises(Forbidden):
        client.load("web", "hits", f"{label}-refused", b"61,a,1\n", SendOptions(format="csv"))
    done = http_calls.put(
        f"{endpoint.url}/api/web/_stream_load_2pc",
        headers={"label": label, "txn_operation": "commit"},
        auth=defining,
    )
    assert done.json()["status"] == "Success"
    assert {60} <= ids(endpoint)
    assert 61 not in ids(endpoint)


def test_a_load_of_one_phase_is_not_committed_from_outside_while_it_runs(
    endpoint: LoadEndpoint, label: str
) -> None:
    """It would be committed without its rows, and its own commit would find that done."""
    manager = endpoint.assembly.manager
    running = manager.begin(BeginRequest("web", ("hits",), label, "r", 60_000, user_name=USER))
    answer = second_phase(endpoint, label=label, txn_operation="commit")
    assert answer["status"] == "Fail"
    assert answer["msg"].endswith(f"transaction [{running.txn_id}] is prepare, not pre-committed.")
    assert state(endpoint, label) == "PREPARE"
    assert second_phase(endpoint, label=label, txn_operation="abort")["status"] == "Success"


def test_what_was_loaded_in_one_phase_has_no_second_one(endpoint: LoadEndpoint, label: str) -> None:
    txn_id = put(endpoint, b"62,a,1\n", label=label)["TxnId"]
    assert endpoint.assembly.visibility.wait("web", txn_id, 60.0)
    answer = second_phase(endpoint, label=label, txn_operation="commit")
    assert answer["msg"].endswith(f"transaction [{txn_id}] is already visible, not pre-committed.")


def test_own_paths_want_the_token(endpoint: LoadEndpoint) -> None:
    url = f"{endpoint.url}/api/v1/stored-tables"
    assert http_calls.get(url, auth=AUTH).status_code == 401
    found = http_calls.get(url, headers={"Authorization": f"Bearer {TOKEN}"})
    assert found.status_code == 200
    assert "hits" in [table["definition"]["name"] for table in found.json()]


def raw(url: str, text: str, *, until: Callable[[bytes], bool], timeout_s: float = 10.0) -> bytes:
    """Send it and read until `until` or the end."""
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), timeout=timeout_s) as connection:
        connection.sendall(text.encode())
        taken = b""
        while not until(taken):
            more = connection.recv(65536)
            if not more:
                break
            taken += more
        return taken


BASIC = "Basic bG9hZGVyOm9wZW4gc2VzYW1l"


def test_who_expects_a_100_is_redirected_before_the_body(endpoint: LoadEndpoint) -> None:
    head = (
        "PUT /api/web/hits/_stream_load?a=b HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
        f"Authorization: {BASIC}\r\nExpect: 100-continue\r\n\r\n"
    )
    answer = raw(endpoint.url, head, until=lambda taken: b"\r\n\r\n" in taken)
    assert answer.startswith(b"HTTP/1.1 307 ")
    assert b"100 Continue" not in answer
    assert f"location: {endpoint.body_url}/api/web/hits/_stream_load?a=b\r\n".encode() in answer.lower()
    refused = raw(
        endpoint.body_url, head.replace(BASIC, "Basic eDp5"), until=lambda taken: b"\r\n\r\n" in taken
    )
    assert refused.startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(("version", "credentials"), [("1.0", "loader:open%20sesame@"), ("1.1", "")])
def test_a_redirect_keeps_the_credentials_of_a_client_of_http_1_0(
    endpoint: LoadEndpoint, version: str, credentials: str
) -> None:
    """It cannot be told to send them to another address, and takes them from the one it is given."""
    head = f"PUT /api/web/hits/_stream_load?a=b HTTP/{version}\r\nHost: x\r\nContent-Length: 0\r\n"
    answer = raw(endpoint.url, f"{head}Authorization: {BASIC}\r\n\r\n", until=lambda it: b"\r\n\r\n" in it)
    assert answer.startswith(b"HTTP/1.1 307 ")
    target = f"{endpoint.body_url.replace('://', '://' + credentials)}/api/web/hits/_stream_load?a=b"
    assert f"\r\nlocation: {target}\r\n".encode() in answer


def test_the_100_comes_when_the_body_is_wanted(endpoint: LoadEndpoint, label: str) -> None:
    where = urlsplit(endpoint.body_url)
    with socket.create_connection((where.hostname, where.port), timeout=10) as connection:
        connection.sendall(
            (
                "PUT /api/web/hits/_stream_load HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
                f"Authorization: {BASIC}\r\nlabel: {label}\r\ncolumn_separator: ,\r\n"
                "Expect: 100-continue\r\n\r\n"
            ).encode()
        )
        assert connection.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"7\r\n60,a,1\n\r\n0\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert 60 in ids(endpoint)


@pytest.mark.parametrize("framing", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
def test_a_body_cut_short_aborts_the_load_at_once(endpoint: LoadEndpoint, label: str, framing: str) -> None:
    where = urlsplit(endpoint.body_url)
    row = b"70,a,1\n"
    sent = row if framing.startswith("Content") else b"7\r\n" + row + b"\r\n"
    with socket.create_connection((where.hostname, where.port), timeout=10) as connection:
        connection.sendall(
            (
                f"PUT /api/web/hits/_stream_load HTTP/1.1\r\nHost: x\r\n{framing}\r\n"
                f"Authorization: {BASIC}\r\nlabel: {label}\r\ncolumn_separator: ,\r\n\r\n"
            ).encode()
            + sent
        )
        until(lambda: state(endpoint, label) == "PREPARE")
    until(lambda: state(endpoint, label) == "ABORTED")
    assert 70 not in ids(endpoint)


def test_a_length_must_be_clear(endpoint: LoadEndpoint) -> None:
    head = f"PUT /api/web/hits/_stream_load HTTP/1.1\r\nHost: x\r\nAuthorization: {BASIC}\r\n\r\n"
    answer = raw(endpoint.body_url, head, until=lambda taken: taken.endswith(b"}\n"))
    assert b"the length of the body is not clear" in answer
    assert b'"Status": "Fail"' in answer
    both = head.replace("\r\n\r\n", "\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n")
    answer = raw(endpoint.body_url, both, until=lambda taken: b"\r\n\r\n" in taken)
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_connectors_find_columns_and_backends(endpoint: LoadEndpoint) -> None:
    schema = http_calls.get(f"{endpoint.url}/api/web/hits/_schema", auth=AUTH).json()
    assert schema["code"] == 0
    assert schema["data"]["keysType"] == "DUP_KEYS"
    assert [column["type"] for column in schema["data"]["properties"]] == ["INT", "STRING", "DECIMAL64"]
    assert schema["data"]["properties"][2]["precision"] == "10"
    assert http_calls.get(f"{endpoint.url}/api/web/misses/_schema", auth=AUTH).json()["code"] != 0
    answer = http_calls.get(f"{endpoint.url}/api/backends?is_alive=true", auth=AUTH).json()
    backends = answer["data"]["backends"]
    where = urlsplit(endpoint.body_url)
    assert backends == [{"ip": where.hostname, "http_port": where.port, "is_alive": True}]
    assert http_calls.get(endpoint.url + "/").json()["keeps_labels"] is True


def test_a_kept_label_goes_when_it_is_acknowledged(endpoint: LoadEndpoint, label: str) -> None:
    assert put(endpoint, b"80,a,1\n", label=label, keep_label="until_acknowledged")["Status"] == "Success"
    done = http_calls.put(
        f"{endpoint.url}/api/web/_acknowledge_labels", json={"labels": [label, "never"]}, auth=AUTH
    ).json()
    assert done["status"] == "Success"
    until(lambda: state(endpoint, label) == "UNKNOWN", poll_s=0.1)


def test_a_transaction_is_ended_by_its_user_or_by_one_who_may_define(
    endpoint: LoadEndpoint, label: str
) -> None:
    other, definer = (OTHER_USER, PASSWORD), (DEFINING_USER, PASSWORD)
    txn_id = str(put(endpoint, b"90,a,1\n", label=label, two_phase_commit="true")["TxnId"])
    for operation in ("abort", "commit"):
        for named in ({"label": label}, {"txn_id": txn_id}):
            refused = second_phase(endpoint, other, txn_operation=operation, **named)
            assert refused["status"] == "Fail"
            assert "is another user's" in refused["msg"]
    assert state(endpoint, label) == "PRECOMMITTED"
    assert second_phase(endpoint, txn_operation="commit", label=label)["status"] == "Success"
    another = str(put(endpoint, b"91,a,1\n", label=f"{label}_", two_phase_commit="true")["TxnId"])
    assert second_phase(endpoint, definer, txn_operation="abort", txn_id=another)["status"] == "Success"


def test_a_kept_label_is_given_up_by_its_user_only(endpoint: LoadEndpoint, label: str) -> None:
    assert put(endpoint, b"92,a,1\n", label=label, keep_label="until_acknowledged")["Status"] == "Success"
    url, body = f"{endpoint.url}/api/web/_acknowledge_labels", {"labels": [label]}
    assert http_calls.put(url, json=body, auth=(OTHER_USER, PASSWORD)).json()["status"] == "Fail"
    assert state(endpoint, label) == "VISIBLE"
    assert http_calls.put(url, json=body, auth=AUTH).json()["status"] == "Success"


def test_a_label_is_closed_by_the_user_of_its_load_only(endpoint: LoadEndpoint, label: str) -> None:
    assert put(endpoint, b"93,a,1\n", label=label, two_phase_commit="true")["Status"] == "Success"
    url = f"{endpoint.url}/api/web/_close_label"
    refused = http_calls.put(url, params={"label": label}, auth=(OTHER_USER, PASSWORD)).json()
    assert (refused["code"], "is another user's" in refused["msg"]) == (1, True)
    assert state(endpoint, label) == "PRECOMMITTED"
    assert http_calls.put(url, params={"label": label}, auth=AUTH).json()["data"] == "ABORTED"
    assert "is closed" in put(endpoint, b"93,a,1\n", label=label)["Message"]
    for wrong in ("", "a b"):
        assert http_calls.put(url, params={"label": wrong}, auth=AUTH).json()["code"] == 1


def test_metrics_move_with_loads(endpoint: LoadEndpoint, label: str) -> None:
    def loaded() -> float:
        page = http_calls.get(f"{endpoint.url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).text
        found = [
            line
            for line in page.splitlines()
            if line.startswith('rtolap_stream_load_rows_total{what="loaded"')
        ]
        return float(found[0].split()[-1]) if found else 0.0

    before = loaded()
    put(endpoint, b"90,a,1\n91,a,1\n", label=label)
    assert loaded() == before + 2


def test_small_loads_of_a_group_share_a_transaction(endpoint: LoadEndpoint) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(
                lambda number: put(endpoint, f"{1000 + number},g,1\n".encode(), group_commit="sync_mode"),
                range(8),
            )
        )
    assert {answer["Status"] for answer in answers} == {"Success"}
    assert [answer["NumberLoadedRows"] for answer in answers] == [1] * 8
    assert len({answer["TxnId"] for answer in answers}) < 8
    assert set(range(1000, 1008)) <= ids(endpoint)


def test_a_wrong_load_harms_no_other_of_its_group(endpoint: LoadEndpoint) -> None:
    together = threading.Barrier(3)

    def load(body: bytes) -> dict[str, object]:
        together.wait(10)
        return put(endpoint, body, group_commit="async_mode")

    for attempt in range(20):  # that they come within an interval is for the machine to say
        first, second = 1100 + 2 * attempt, 1101 + 2 * attempt
        bodies = (b"%d,g,1\n" % first, b"x,g,1\n", b"%d,g,1\n" % second)
        with ThreadPoolExecutor(3) as pool:
            one, wrong, other = pool.map(load, bodies)
        assert [one["Status"], wrong["Status"], other["Status"]] == ["Success", "Fail", "Success"]
        assert {first, second} <= ids(endpoint)
        if one["TxnId"] == other["TxnId"]:
            return
    raise AssertionError("no two loads came together")


def test_loads_whose_rows_differ_in_type_do_not_share_a_group(endpoint: LoadEndpoint) -> None:
    """What is negated has wider sums."""
    columns = (StoredColumn("id", "int"), StoredColumn("amount", "int", aggregate="SUM"))
    sums = StoredTable(database="web", name="sums", model="aggregate", columns=columns, keys=("id",))
    endpoint.assembly.catalogue.create_table(sums)
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(
                lambda number: put(
                    endpoint,
                    b"1,5\n",
                    "sums",
                    group_commit="sync_mode",
                    negative=("false", "true")[number % 2],
                ),
                range(8),
            )
        )
    assert {answer["Status"] for answer in answers} == {"Success"}
    assert sorted(row["amount"] for row in endpoint.rows("web", "sums")) == [-5] * 4 + [5] * 4


def test_the_timeout_of_one_load_is_not_that_of_its_group(
    endpoint: LoadEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    begin = endpoint.assembly.manager.begin

    def noted(wanted: BeginRequest) -> Transaction:
        asked.append(wanted.timeout_ms)
        return begin(wanted)

    monkeypatch.setattr(endpoint.assembly.manager, "begin", noted)
    assert put(endpoint, b"1200,g,1\n", group_commit="sync_mode", timeout="30")["Status"] == "Success"
    assert asked == [TIMEOUT_S_DEFAULT * 1000]


def test_a_body_that_unpacks_to_too_much_for_a_group_fails_early(
    endpoint: LoadEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a group holds in memory is bounded by the rows, however few bytes they have come in."""
    monkeypatch.setattr(group_commit, "GROUP_BYTES_MAX", 1_000_000)
    drawn = 0

    def counted(*arguments: Any) -> Iterator[DecodedBatch]:
        nonlocal drawn
        for batch in decode_body(*arguments):
            drawn += 1
            yield batch

    monkeypatch.setattr(one_load, "decode_body", counted)
    body = gzip.compress(b"1300,g,1\n" * 1_000_000)
    answer = put(endpoint, body, group_commit="sync_mode", compress_type="gz")
    assert answer["Status"] == "Fail"
    assert "too large for group commit" in str(answer["Message"])
    assert "without group_commit" in str(answer["Message"])
    assert drawn == 1
    assert 1300 not in ids(endpoint)


def test_an_application_is_assembled_once_before_a_port_has_a_request() -> None:
    """Two threads whose first requests come together would both do it, and one would fail."""
    assembled = []

    class Noted:
        def __init__(self, app: Any) -> None:
            assembled.append(app)

    app = FastAPI()
    app.add_middleware(Noted)
    for takes_bodies in (False, True):
        Port(app, takes_bodies=takes_bodies)
        assert len(assembled) == 1


def test_too_many_loads_are_told_to_come_back(tmp_path: Path) -> None:
    head = (
        f"PUT /api/web/hits/_stream_load HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
        f"Authorization: {BASIC}\r\n\r\n"
    )
    with load_endpoint(tmp_path, FrontendOptions(loads_max=1)) as narrow:
        narrow.assembly.catalogue.create_table(HITS)
        where = urlsplit(narrow.body_url)
        with socket.create_connection((where.hostname, where.port), timeout=10) as connection:
            connection.sendall((head.replace("Host", "label: first\r\nHost")).encode())
            until(lambda: state(narrow, "first") == "PREPARE")
            answer = raw(narrow.body_url, head, until=lambda taken: taken.endswith(b"}\n"))
            assert answer.startswith(b"HTTP/1.1 429 ")
            assert b"retry-after: 1" in answer.lower()
        until(lambda: state(narrow, "first") == "ABORTED")
        assert put(narrow, b"1,a,1\n")["Status"] == "Success"


def test_one_user_has_not_all_loads(tmp_path: Path) -> None:
    head = (
        f"PUT /api/web/hits/_stream_load HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
        f"Authorization: {BASIC}\r\ntimeout: 259200\r\n"
    )
    with load_endpoint(tmp_path, FrontendOptions(loads_max=3, loads_per_user_max=2)) as narrow:
        narrow.assembly.catalogue.create_table(HITS)
        where = urlsplit(narrow.body_url)
        with contextlib.ExitStack() as stalled:
            for label in ("first", "second"):
                connection = socket.create_connection((where.hostname, where.port), timeout=60)
                stalled.enter_context(connection).sendall(f"{head}label: {label}\r\n\r\n1".encode())
                until(lambda: state(narrow, label) == "PREPARE")  # noqa: B023
            answer = raw(narrow.body_url, f"{head}\r\n", until=lambda taken: taken.endswith(b"}\n"))
            assert answer.startswith(b"HTTP/1.1 429 ")
            assert b"too many loads of loader run in this process: 2" in answer
            other = http_calls.put(
                f"{narrow.body_url}/api/web/hits/_stream_load",
                content=b"1,a,1\n",
                headers={"column_separator": ","},
                auth=httpx.BasicAuth(DEFINING_USER, PASSWORD),
                timeout=60,
            )
            assert other.json()["Status"] == "Success"


def test_a_body_that_hardly_comes_gives_its_place_back(tmp_path: Path) -> None:
    """However long a timeout it has asked for."""
    limits = HttpLimits(body_grace_s=0.5)
    with load_endpoint(tmp_path, FrontendOptions(loads_max=1, http=limits)) as narrow:
        narrow.assembly.catalogue.create_table(HITS)
        where = urlsplit(narrow.body_url)
        with socket.create_connection((where.hostname, where.port), timeout=60) as connection:
            connection.sendall(
                (
                    "PUT /api/web/hits/_stream_load HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
                    f"Authorization: {BASIC}\r\nlabel: drip\r\ntimeout: 259200\r\n\r\n1"
                ).encode()
            )
            assert connection.recv(65536).startswith(b"HTTP/1.1 408 ")
            until(lambda: state(narrow, "drip") == "ABORTED")
        assert put(narrow, b"1,a,1\n")["Status"] == "Success"


def test_too_many_transactions_of_a_database_are_refused(tmp_path: Path) -> None:
    with load_endpoint(tmp_path, FrontendOptions(transactions_max=2)) as narrow:
        narrow.assembly.catalogue.create_table(HITS)
        for label in ("one", "two"):
            assert put(narrow, b"1,a,1\n", label=label, two_phase_commit="true")["Status"] == "Success"
        third = put(narrow, b"1,a,1\n", label="three")
        assert third["Status"] == "Fail"
        assert "current running txns on db web is 2, larger than limit 2" in str(third["Message"])
        second_phase(narrow, label="one", txn_operation="abort")
        assert put(narrow, b"1,a,1\n", label="three")["Status"] == "Success"


def test_a_load_that_stalls_ends_at_its_timeout(endpoint: LoadEndpoint, label: str) -> None:
    where = urlsplit(endpoint.body_url)
    with socket.create_connection((where.hostname, where.port), timeout=20) as connection:
        connection.sendall(
            (
                "PUT /api/web/hits/_stream_load HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
                f"Authorization: {BASIC}\r\nlabel: {label}\r\ntimeout: 1\r\n\r\n"
            ).encode()
        )
        until(lambda: state(endpoint, label) == "ABORTED", poll_s=0.1)


def test_who_is_slow_holds_its_sender_back(tmp_path: Path) -> None:
    """The nodes take nothing: what the endpoint takes of the body is bounded."""
    with load_endpoint(tmp_path) as slow:
        slow.assembly.catalogue.create_table(HITS)
        gate = threading.Event()
        receive = slow.nodes.receive

        def waiting(node: str, txn_id: int, tablet: Tablet, rows: list[object]) -> None:
            assert gate.wait(20)
            receive(node, txn_id, tablet, rows)

        slow.nodes.receive = waiting  # type: ignore[method-assign]
        sent = 0

        def body() -> Iterator[bytes]:
            nonlocal sent
            for number in range(400):
                chunk = b"".join(b"%d,%s,1\n" % (number, b"x" * 1000) for _ in range(100))
                sent += len(chunk)
                yield chunk

        with ThreadPoolExecutor(1) as pool:
            load = pool.submit(put, slow, body(), label="slow")
            last = -1
            while sent != last or sent < BYTES_MAX:  # until the sender stands still, for its pipe is full
                assert not load.done()
                last = sent
                time.sleep(0.3)
            stood_at = sent
            gate.set()
            assert load.result()["NumberLoadedRows"] == 40_000
        assert stood_at < 30 << 20 < sent
