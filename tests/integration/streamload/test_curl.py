"""The documented options, driven by curl: redirect, formats, conditions, two phases, errors."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import subprocess
import time
import uuid
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from rtolap.testing.stream_load_cluster import PASSWORD, USER, StreamLoadCluster
from rtolap.wire.stored_tables import TableName
from rtolap.wire.stream_load import LoadState, SendOptions
from rtolap.wire.stream_load_client import StreamLoadClient

AT = datetime(2026, 11, 21, 12, 0)
CSV = b"1,a,1.50,2026-11-21 12:00:00\n2,b,-2.25,2026-11-21 12:00:00\n3,\\N,\\N,\\N\n"
ROWS = [
    {"id": 1, "host": "a", "amount": Decimal("1.50"), "at": AT},
    {"id": 2, "host": "b", "amount": Decimal("-2.25"), "at": AT},
    {"id": 3, "host": None, "amount": None, "at": None},
]


def curl(*arguments: str, body: bytes | None = None) -> tuple[int, bytes]:
    """(HTTP status of the last answer, its body)."""
    done = subprocess.run(
        ["curl", "--silent", "--show-error", "--max-time", "60", "--write-out", "\n%{http_code}", *arguments],
        input=body,
        capture_output=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr.decode()
    answer, _, status = done.stdout.rpartition(b"\n")
    return int(status), answer


def load(
    cluster: StreamLoadCluster, table: TableName, body: bytes, *, chunked: bool = True, **headers: str
) -> dict[str, Any]:
    """As the manual has it: to the first port, which sends it on."""
    named = {"column_separator": ",", "Expect": "100-continue"} | {
        name.replace("__", "."): value for name, value in headers.items()
    }
    how = ("-T", "-") if chunked else ("-X", "PUT", "--data-binary", "@-")
    status, answer = curl(
        "--location-trusted",
        *("-u", f"{USER}:{PASSWORD}"),
        *(word for name, value in named.items() for word in ("-H", f"{name}: {value}")),
        *how,
        f"{cluster.urls[0]}/api/{table.db}/{table.name}/_stream_load",
        body=body,
    )
    assert status == 200, answer
    return dict(json.loads(answer))


def second_phase(cluster: StreamLoadCluster, table: TableName, **headers: str) -> dict[str, str]:
    words = [word for name, value in headers.items() for word in ("-H", f"{name}: {value}")]
    url = f"{cluster.urls[0]}/api/{table.db}/_stream_load_2pc"
    status, answer = curl("--location-trusted", "-u", f"{USER}:{PASSWORD}", "-X", "PUT", *words, url)
    assert status == 200
    return dict(json.loads(answer))


@pytest.mark.parametrize("chunked", [True, False])
def test_csv_is_taken_where_the_redirect_leads(
    cluster: StreamLoadCluster, table: TableName, chunked: bool
) -> None:
    answer = load(cluster, table, CSV, chunked=chunked, label=uuid.uuid4().hex)
    assert answer["Status"] == "Success"
    assert answer["NumberLoadedRows"] == 3
    assert cluster.rows(table) == ROWS


def test_the_redirect_comes_before_the_body(cluster: StreamLoadCluster, table: TableName) -> None:
    url = f"{cluster.urls[0]}/api/{table.db}/{table.name}/_stream_load"
    done = subprocess.run(
        ["curl", "-sv", "-u", f"{USER}:{PASSWORD}", "-H", "Expect: 100-continue", "-T", "-", url],
        input=CSV,
        capture_output=True,
        timeout=30,
    )
    said = done.stderr.decode()
    assert "< HTTP/1.1 307" in said
    assert "100 Continue" not in said
    assert f"< location: {cluster.body_urls[0]}/api/" in said.lower()


ARROW = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "host": ["a", "b", None],
        "amount": pa.array([Decimal("1.50"), Decimal("-2.25"), None], pa.decimal128(10, 2)),
        "at": pa.array([AT, AT, None], pa.timestamp("us")),
    }
)


def _parquet() -> bytes:
    sink = io.BytesIO()
    pa.parquet.write_table(ARROW, sink)
    return sink.getvalue()


def _orc() -> bytes:
    sink = io.BytesIO()
    pa.orc.write_table(ARROW, sink)
    return sink.getvalue()


def _arrow() -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, ARROW.schema) as writer:
        writer.write_table(ARROW)
    return sink.getvalue()


def _json_lines() -> bytes:
    return b"".join(json.dumps(row, default=str).encode() + b"\n" for row in ROWS)


def _json_list() -> bytes:
    return json.dumps({"data": {"rows": ROWS}}, default=str).encode()


BODIES: dict[str, tuple[bytes, dict[str, str]]] = {
    "gz": (gzip.compress(CSV), {"compress_type": "gz"}),
    "bz2": (bz2.compress(CSV), {"compress_type": "bz2"}),
    "names": (b"id,host,amount,at\n" + CSV, {"format": "csv_with_names"}),
    "types": (b"id,host,amount,at\nINT,STRING,X,Y\n" + CSV, {"format": "csv_with_names_and_types"}),
    "skip": (b"a comment\n" + CSV, {"skip_lines": "1"}),
    "hidden": (CSV.replace(b",", b"\x01"), {"column_separator": "\\x01"}),
    "wide": (CSV.replace(b",", b"||"), {"column_separator": "||"}),
    "enclosed": (CSV.replace(b",a,", b',"a",'), {"enclose": '"', "escape": "\\"}),
    "lines": (_json_lines(), {"format": "json", "read_json_by_line": "true"}),
    "list": (
        _json_list(),
        {"format": "json", "strip_outer_array": "true", "json_root": "$.data.rows"},
    ),
    "paths": (
        _json_lines(),
        {
            "format": "json",
            "read_json_by_line": "true",
            "jsonpaths": '["$.at", "$.id", "$.host", "$.amount"]',
            "columns": "at,id,host,amount",
        },
    ),
    "parquet": (_parquet(), {"format": "parquet"}),
    "orc": (_orc(), {"format": "orc"}),
    "arrow": (_arrow(), {"format": "arrow"}),
}


@pytest.mark.parametrize("kind", BODIES)
def test_formats_bring_the_same_rows(cluster: StreamLoadCluster, table: TableName, kind: str) -> None:
    body, headers = BODIES[kind]
    answer = load(cluster, table, body, **headers)
    assert answer["Status"] == "Success", answer
    assert cluster.rows(table) == ROWS


def test_columns_are_mapped_and_rows_selected(cluster: StreamLoadCluster, table: TableName) -> None:
    answer = load(
        cluster,
        table,
        b"5,x,10\n6,y,20\n7,z,30\n",
        columns="k, host, v, id = k * 10, amount = v / 4",
        where="id > 50",
    )
    assert (answer["Status"], answer["NumberUnselectedRows"]) == ("Success", 1), answer
    found = [(row["id"], row["host"], row["amount"]) for row in cluster.rows(table)]
    assert found == [(60, "y", Decimal("5.00")), (70, "z", Decimal("7.50"))]


def test_rows_are_replaced_and_deleted(cluster: StreamLoadCluster, unique_table: TableName) -> None:
    assert load(cluster, unique_table, CSV)["Status"] == "Success"
    merged = load(
        cluster,
        unique_table,
        b"1,new,0,\\N,0\n2,b,0,\\N,1\n",
        columns="id,host,amount,at,gone",
        merge_type="MERGE",
        delete="gone = 1",
    )
    assert merged["Status"] == "Success", merged
    assert [(row["id"], row["host"]) for row in cluster.rows(unique_table)] == [(1, "new"), (3, None)]
    assert load(cluster, unique_table, CSV, merge_type="DELETE")["Status"] == "Success"
    assert cluster.rows(unique_table) == []


def test_partial_columns_keep_the_others(cluster: StreamLoadCluster, unique_table: TableName) -> None:
    assert load(cluster, unique_table, CSV)["Status"] == "Success"
    partial = {"columns": "id,amount", "partial_columns": "true"}
    answer = load(cluster, unique_table, b"1,9.75\n4,4.00\n1,9.50\n", **partial)
    assert (answer["Status"], answer["NumberLoadedRows"]) == ("Success", 3), answer
    assert cluster.rows(unique_table) == [
        ROWS[0] | {"amount": Decimal("9.50")},
        *ROWS[1:],
        {"id": 4, "host": None, "amount": Decimal("4.00"), "at": None},
    ]
    answer = load(cluster, unique_table, b"2\n3\n", columns="id", partial_columns="true", merge_type="DELETE")
    assert answer["Status"] == "Success", answer
    assert [row["id"] for row in cluster.rows(unique_table)] == [1, 4]
    answer = load(cluster, unique_table, b"a\n", columns="host", partial_columns="true")
    assert answer["Status"] == "Fail"
    assert "partial rows lack key columns" in answer["Message"]


def test_two_phases(cluster: StreamLoadCluster, table: TableName) -> None:
    label = uuid.uuid4().hex
    answer = load(cluster, table, CSV, label=label, two_phase_commit="true")
    assert (answer["Status"], answer["TwoPhaseCommit"]) == ("Success", "true")
    assert cluster.rows(table) == []
    meanwhile = load(cluster, table, CSV, label=label, two_phase_commit="true")
    assert (meanwhile["Status"], meanwhile["ExistingJobStatus"]) == ("Label Already Exists", "PRECOMMITTED")
    assert meanwhile["TwoPhaseCommit"] == "true"
    done = second_phase(cluster, table, txn_id=str(answer["TxnId"]), txn_operation="commit")
    assert done["msg"] == f"transaction [{answer['TxnId']}] commit successfully."
    assert cluster.rows(table) == ROWS
    again = load(cluster, table, CSV, label=label)
    assert (again["Status"], again["ExistingJobStatus"]) == ("Label Already Exists", "FINISHED")


def test_a_request_that_is_repeated_while_the_first_is_under_way_is_told_so(
    cluster: StreamLoadCluster, table: TableName
) -> None:
    label = uuid.uuid4().hex
    answers: list[dict[str, Any]] = []

    with StreamLoadClient(cluster.urls, USER, PASSWORD) as client:

        def body() -> Iterator[bytes]:
            yield CSV[:20]
            deadline_s = time.monotonic() + 30
            while client.state(table.db, label) is not LoadState.PREPARE:
                assert time.monotonic() < deadline_s
            answers.append(load(cluster, table, CSV, label=label))
            yield CSV[20:]

        options = SendOptions(format="csv", headers={"column_separator": ","})
        first = client.load(table.db, table.name, label, body(), options)
    (again,) = answers
    assert (again["Status"], again["ExistingJobStatus"]) == ("Label Already Exists", "RUNNING")
    assert f"Label [{label}] has already been used, relate to txn [{first.txn_id}]" in again["Message"]
    assert (first.status, first.number_loaded_rows) == ("Success", 3)
    assert cluster.rows(table) == ROWS


BAD: dict[str, tuple[bytes, dict[str, str], str]] = {
    "column count": (b"1,a\n", {}, "too many filtered rows"),
    "no number": (b"one,a,1,\\N\n", {}, "too many filtered rows"),
    "overflow": (b"99999999999,a,1,\\N\n", {}, "too many filtered rows"),
    "bad date": (b"1,a,1,2026-13-45 00:00:00\n", {"strict_mode": "true"}, "too many filtered rows"),
    "json": (b'{"id": 1\n', {"format": "json", "read_json_by_line": "true"}, ""),
    "unknown column": (b"1\n", {"columns": "id, nowhere = id + 1"}, "nowhere"),
    "no gzip": (CSV, {"compress_type": "gz"}, ""),
    "cut gzip": (gzip.compress(CSV * 1000)[:-20], {"compress_type": "gz"}, ""),
    "no parquet": (CSV, {"format": "parquet"}, ""),
    "other parquet": (_orc(), {"format": "parquet"}, ""),
    "unknown format": (CSV, {"format": "xml"}, "header format"),
    "long line": (b"1," + b"x" * (70 << 20) + b",1,\\N\n", {}, "record"),
    "bomb": (gzip.compress(b"0" * (200 << 20)), {"compress_type": "gz"}, ""),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_bodies_fail_and_leave_nothing(cluster: StreamLoadCluster, table: TableName, kind: str) -> None:
    body, headers, says = BAD[kind]
    label = uuid.uuid4().hex
    answer = load(cluster, table, body, label=label, **headers)
    assert answer["Status"] == "Fail", answer
    assert says in answer["Message"]
    assert answer["Message"] != "OK"
    if answer["NumberFilteredRows"]:
        status, log = curl(answer["ErrorURL"])
        assert (status, log.startswith(b"Reason: ")) == (200, True)
    assert cluster.rows(table) == []
    assert load(cluster, table, CSV, label=label)["Status"] == "Success"  # the label is free again


def test_an_unknown_table_and_a_wrong_password(cluster: StreamLoadCluster, table: TableName) -> None:
    answer = load(cluster, TableName("web", "nowhere"), CSV)
    assert answer["Status"] == "Fail"
    assert "unknown table" in answer["Message"]
    url = f"{cluster.urls[0]}/api/{table.db}/{table.name}/_stream_load"
    status, _ = curl("--location-trusted", "-u", f"{USER}:wrong", "-T", "-", url, body=CSV)
    assert status == 401


def test_a_body_from_a_file_of_many_rows(
    cluster: StreamLoadCluster, table: TableName, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("".join(f"{number},h{number % 7},{number}.25,\\N\n" for number in range(200_000)))
    status, answer = curl(
        *("--location-trusted", "-u", f"{USER}:{PASSWORD}", "-H", "column_separator: ,", "-T", str(path)),
        f"{cluster.urls[0]}/api/{table.db}/{table.name}/_stream_load",
    )
    assert (status, json.loads(answer)["NumberLoadedRows"]) == (200, 200_000)
    assert len(cluster.rows(table, ("id",))) == 200_000
