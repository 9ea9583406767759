"""The documented options, driven by curl: redirect, formats, conditions, two phases, errors."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import struct
import subprocess
import time
import uuid
import zlib
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from rtolap.model.stored.table import RangePartitions, StoredColumn, StoredTable
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import LoadState, SendOptions

from tests.support.cubes.services import wait_for
from tests.support.stored.stream_load_cluster import PASSWORD, USER, StreamLoadCluster
from tests.support.waiting import patience_s

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
        timeout=patience_s(90),
        check=False,
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


def columns() -> tuple[StoredColumn, ...]:
    return (
        StoredColumn("id", "int", nullable=False),
        StoredColumn("host", "string"),
        StoredColumn("amount", "decimal(10,2)"),
        StoredColumn("at", "timestamp"),
    )


def created(cluster: StreamLoadCluster, unique_name: str, **definition: Any) -> TableName:
    name = f"t_{unique_name[-8:]}"
    cluster.tables.create(StoredTable(database="web", name=name, keys=("id",), **definition))
    return TableName("web", name)


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
        timeout=patience_s(30),
        check=False,
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


def _parquet(rows: pa.Table = ARROW) -> bytes:
    sink = io.BytesIO()
    pa.parquet.write_table(rows, sink)
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


def _packed(codec: str, body: bytes = CSV) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(body)
    return bytes(sink.getvalue())


def _snappy() -> bytes:
    """Framed; checksums are not looked at."""
    block = bytes(4) + pa.Codec("snappy").compress(CSV, asbytes=True)
    return b"\xff\x06\0\0sNaPpY\0" + struct.pack("<I", len(block))[:3] + block


def _json_lines() -> bytes:
    return b"".join(json.dumps(row, default=str).encode() + b"\n" for row in ROWS)


def _json_list() -> bytes:
    return json.dumps({"data": {"rows": ROWS}}, default=str).encode()


BODIES: dict[str, tuple[bytes, dict[str, str]]] = {
    "gz": (gzip.compress(CSV), {"compress_type": "gz"}),
    "bz2": (bz2.compress(CSV), {"compress_type": "bz2"}),
    "lz4": (_packed("lz4"), {"compress_type": "lz4"}),
    "zstd": (_packed("zstd"), {"compress_type": "zstd"}),
    "deflate": (zlib.compress(CSV), {"compress_type": "deflate"}),
    "snappy": (_snappy(), {"compress_type": "snappy"}),
    "names": (b"id,host,amount,at\n" + CSV, {"format": "csv_with_names"}),
    "types": (b"id,host,amount,at\nINT,STRING,X,Y\n" + CSV, {"format": "csv_with_names_and_types"}),
    "skip": (b"a comment\n" + CSV, {"skip_lines": "1"}),
    "hidden": (CSV.replace(b",", b"\x01"), {"column_separator": "\\x01"}),
    "wide": (CSV.replace(b",", b"||"), {"column_separator": "||"}),
    "enclosed": (CSV.replace(b",a,", b',"a",'), {"enclose": '"', "escape": "\\"}),
    "lines by a word": (CSV.replace(b"\n", b"<end>"), {"line_delimiter": "<end>"}),
    "trimmed": (CSV.replace(b",a,", b',"a",'), {"trim_double_quotes": "true"}),
    "empty is null": (CSV.replace(b"\\N", b""), {"empty_field_as_null": "true"}),
    "lines": (_json_lines(), {"format": "json", "read_json_by_line": "true"}),
    "list": (
        _json_list(),
        {
            "format": "json",
            "strip_outer_array": "true",
            "json_root": "$.data.rows",
            "fuzzy_parse": "true",
        },
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


def test_the_mode_of_unique_keys_says_the_same(cluster: StreamLoadCluster, unique_table: TableName) -> None:
    assert load(cluster, unique_table, CSV)["Status"] == "Success"
    mode = {"columns": "id,amount", "unique_key_update_mode": "UPDATE_FIXED_COLUMNS"}
    assert load(cluster, unique_table, b"2,9.75\n", **mode)["Status"] == "Success"
    assert cluster.rows(unique_table) == [ROWS[0], ROWS[1] | {"amount": Decimal("9.75")}, ROWS[2]]


def test_a_hidden_column_deletes(cluster: StreamLoadCluster, unique_table: TableName) -> None:
    assert load(cluster, unique_table, CSV)["Status"] == "Success"
    sign = "__DORIS_DELETE_SIGN__"
    hidden = {"columns": f"id,host,{sign}", "hidden_columns": sign}
    assert load(cluster, unique_table, b"1,new,0\n2,b,1\n", **hidden)["Status"] == "Success"
    assert [(row["id"], row["host"]) for row in cluster.rows(unique_table)] == [(1, "new"), (3, None)]


def test_a_sequence_from_another_field_decides_between_rows(
    cluster: StreamLoadCluster, unique_name: str
) -> None:
    name = created(cluster, unique_name, model="unique", columns=columns(), sequence_column="at")
    later, earlier = b"1,new,2026-11-21 12:00:00\n", b"1,old,2026-11-20 12:00:00\n2,b,2026-11-20 12:00:00\n"
    for body in (later, earlier):
        given = {"columns": "id,host,changed", "function_column__sequence_col": "changed"}
        assert load(cluster, name, body, **given)["Status"] == "Success"
    assert [(row["id"], row["host"]) for row in cluster.rows(name)] == [(1, "new"), (2, "b")]


def test_a_negative_load_takes_sums_back(cluster: StreamLoadCluster, unique_name: str) -> None:
    sums = (StoredColumn("id", "int", nullable=False), StoredColumn("n", "bigint", aggregate="SUM"))
    name = created(cluster, unique_name, model="aggregate", columns=sums)
    assert load(cluster, name, b"1,5\n2,7\n")["Status"] == "Success"
    assert load(cluster, name, b"1,5\n2,3\n", negative="true")["Status"] == "Success"
    assert cluster.rows(name) == [{"id": 1, "n": 0}, {"id": 2, "n": 4}]


def test_only_the_named_partitions_take_rows(cluster: StreamLoadCluster, unique_name: str) -> None:
    days = RangePartitions("at", "day", ahead=0)
    at = StoredColumn("at", "timestamp", nullable=False)
    name = created(cluster, unique_name, columns=(*columns()[:3], at), partitions=days)
    assert (
        load(cluster, name, b"1,a,1,2026-11-21 12:00:00\n2,b,1,2026-11-20 12:00:00\n")["Status"] == "Success"
    )
    both = b"3,a,1,2026-11-21 13:00:00\n4,b,1,2026-11-20 13:00:00\n"
    assert load(cluster, name, both, partitions="p20261121")["Status"] == "Fail"
    answer = load(cluster, name, both, partitions="p20261121", max_filter_ratio="0.5")
    assert (answer["Status"], answer["NumberLoadedRows"], answer["NumberFilteredRows"]) == ("Success", 1, 1)
    assert [row["id"] for row in cluster.rows(name)] == [1, 2, 3]
    assert curl(answer["ErrorURL"])[0] == 200


def test_instants_with_a_zone_are_shown_in_the_one_that_is_named(
    cluster: StreamLoadCluster, table: TableName
) -> None:
    body = b"1,a,1,2026-11-21 12:00:00Z\n"
    assert load(cluster, table, body, timezone="Asia/Shanghai")["Status"] == "Success"
    assert [row["at"] for row in cluster.rows(table)] == [datetime(2026, 11, 21, 20, 0)]


@pytest.mark.parametrize(("as_written", "host"), [("true", "12.50"), ("false", "12.5")])
def test_numbers_become_text_as_they_are_written(
    cluster: StreamLoadCluster, table: TableName, as_written: str, host: str
) -> None:
    answer = load(cluster, table, b'{"id": 1, "host": 12.50}\n', **LINES, num_as_string=as_written)
    assert answer["Status"] == "Success", answer
    assert [row["host"] for row in cluster.rows(table)] == [host]


def test_small_loads_may_share_a_transaction_and_comments_come_back(
    cluster: StreamLoadCluster, table: TableName
) -> None:
    answer = load(cluster, table, CSV, chunked=False, group_commit="sync_mode", comment="by hand")
    assert (answer["Status"], answer["Comment"]) == ("Success", "by hand"), answer
    assert answer["Label"].startswith("group_commit_")
    assert cluster.rows(table) == ROWS


def test_a_kept_label_is_taken_again_when_it_was_acknowledged(
    cluster: StreamLoadCluster, table: TableName
) -> None:
    kept = {"label": uuid.uuid4().hex, "keep_label": "until_acknowledged"}
    assert load(cluster, table, CSV, **kept)["Status"] == "Success"
    assert load(cluster, table, CSV, **kept)["Status"] == "Label Already Exists"
    status, answer = curl(
        *("-u", f"{USER}:{PASSWORD}", "-X", "PUT", "--data-binary", json.dumps({"labels": [kept["label"]]})),
        f"{cluster.urls[0]}/api/{table.db}/_acknowledge_labels",
    )
    assert (status, json.loads(answer)["status"]) == (200, "Success")
    with StreamLoadClient(cluster.urls, USER, PASSWORD) as client:
        wait_for("the label is gone", lambda: client.state(table.db, kept["label"]) is LoadState.UNKNOWN, 30)
    assert load(cluster, table, CSV, **kept)["Status"] == "Success"
    assert len(cluster.rows(table)) == 2 * len(ROWS)


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
            deadline_s = time.monotonic() + patience_s(30)
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


FILTERED = "too many filtered rows"
NO_PARQUET = "the body is not what its format says"
GZ, LINES = {"compress_type": "gz"}, {"format": "json", "read_json_by_line": "true"}

# Kind → body, headers, what the message says, whether there is a file of refused rows.
BAD: dict[str, tuple[bytes, dict[str, str], str, bool]] = {
    "column count": (b"1,a\n", {}, FILTERED, True),
    "no number": (b"one,a,1,\\N\n", {}, FILTERED, True),
    "overflow": (b"99999999999,a,1,\\N\n", {}, FILTERED, True),
    "bad date": (b"1,a,1,2026-13-45 00:00:00\n", {"strict_mode": "true"}, FILTERED, True),
    "json": (b'{"id": 1\n', LINES, FILTERED, True),
    "unknown column": (b"1\n", {"columns": "id, nowhere = id + 1"}, "nowhere", False),
    "no gzip": (CSV, GZ, "the body is no gz data, or is cut short", False),
    "cut gzip": (gzip.compress(CSV * 1000)[:-20], GZ, "the body is no gz data, or is cut short", False),
    "no parquet": (CSV, {"format": "parquet"}, NO_PARQUET, False),
    "orc as parquet": (_orc(), {"format": "parquet"}, NO_PARQUET, False),
    "other parquet": (
        _parquet(ARROW.drop_columns(["id"])),
        {"format": "parquet"},
        "column id has no default value and may not be null",
        False,
    ),
    "unknown format": (CSV, {"format": "xml"}, "header format", False),
    "long line": (b"1," + b"x" * (70 << 20) + b",1,\\N\n", {}, "a record is too long", False),
    "bomb": (_packed("zstd", CSV * 15_000) * 100, {"compress_type": "zstd"}, "unpacks to too much", False),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_bodies_fail_and_leave_nothing(cluster: StreamLoadCluster, table: TableName, kind: str) -> None:
    body, headers, says, has_error_file = BAD[kind]
    label = uuid.uuid4().hex
    answer = load(cluster, table, body, label=label, **headers)
    assert answer["Status"] == "Fail", answer
    assert says in answer["Message"]
    assert (bool(answer.get("ErrorURL")), answer["NumberFilteredRows"] > 0) == (has_error_file,) * 2, answer
    if has_error_file:
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
