"""A client from PyPI that was written for Doris does its normal job: DorisClient."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from rtolap.protocols.stored_tables.messages import TableName

from tests.support.commands import install_apart
from tests.support.stored.stream_load_cluster import PASSWORD, USER, StreamLoadCluster
from tests.support.waiting import patience_s

DORIS_CLIENT = "DorisClient==1.2.22"  # its needs, requests and PyMySQL, are here anyway


@pytest.fixture(scope="package")
def doris_client(server_folder: Path) -> Path:
    """The folder that it is installed in, apart from everything else."""
    folder = server_folder / "doris-client"
    install_apart(folder, [DORIS_CLIENT], timeout_s=120)
    return folder


SCRIPT = """
import json, sys
from DorisClient import DorisSession
server, database, user, password, table, rows, options = sys.argv[1:]
session = DorisSession([server], database, user, password)
print(session._streamload(table, json.loads(rows), **json.loads(options)))
"""


def send(
    cluster: StreamLoadCluster, folder: Path, table: TableName, rows: list[dict[str, object]], **options: str
) -> str:
    where = urlsplit(cluster.urls[0]).netloc
    arguments = (where, table.db, USER, PASSWORD, table.name, json.dumps(rows), json.dumps(options))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        env={"PYTHONPATH": str(folder), "no_proxy": "*"},
        capture_output=True,
        text=True,
        timeout=patience_s(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def test_rows_are_loaded(cluster: StreamLoadCluster, table: TableName, doris_client: Path) -> None:
    rows: list[dict[str, object]] = [
        {"id": 1, "host": "a", "amount": "1.25", "at": "2026-11-21 12:00:00"},
        {"id": 2, "host": None, "amount": None, "at": None},
    ]
    assert send(cluster, doris_client, table, rows) == "True"
    found = [(row["id"], row["host"], row["amount"]) for row in cluster.rows(table)]
    assert found == [(1, "a", Decimal("1.25")), (2, None, None)]


def test_rows_are_deleted(cluster: StreamLoadCluster, unique_table: TableName, doris_client: Path) -> None:
    rows: list[dict[str, object]] = [{"id": number, "host": "a"} for number in range(3)]
    assert send(cluster, doris_client, unique_table, rows) == "True"
    assert send(cluster, doris_client, unique_table, rows[:1], merge_type="DELETE") == "True"
    assert [row["id"] for row in cluster.rows(unique_table)] == [1, 2]


def test_a_refused_load_is_told(cluster: StreamLoadCluster, table: TableName, doris_client: Path) -> None:
    assert send(cluster, doris_client, table, [{"id": "one"}]) == "False"
    assert cluster.rows(table) == []
