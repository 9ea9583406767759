"""A stored table that mirrors a real HBase's table equals its scan, cell by cell, whatever was written."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pymysql
import pytest
from rtolap.base.clock import SystemClock
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.model.subscription import (
    CellColumn,
    HBaseSource,
    RowColumn,
    Subscription,
    SubscriptionListener,
    SubscriptionPoison,
)
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.sep.delivery.state import read_state
from rtolap.sep.subscriptions.commands import create, drop
from rtolap.sep.subscriptions.records import SubscriptionPaths
from rtolap.sep.subscriptions.source import open_source

from tests.support.hbase import mutations
from tests.support.hbase.client import HBaseClient
from tests.support.hbase.client_pb2 import MutationProto
from tests.support.sep.consumers import ConsumerProcess, wait_for_leader
from tests.support.sep.row_lives import FAMILIES, drawn_mutation
from tests.support.stored.stored_cluster import StoredCluster
from tests.support.stored.stream_load_cluster import HOST, PASSWORD, USER
from tests.support.waiting import patience_s, result_of, until

pytestmark = pytest.mark.integration

ROWS = [b"row-%02d" % number for number in range(16)]
State = tuple[int | None, str | None]
COLUMNS = (
    StoredColumn("id", "string", nullable=False),
    StoredColumn("a", "bigint"),
    StoredColumn("b", "string"),
)


@pytest.fixture(scope="module")
def cluster(owned: None, module_folder: Path, zookeeper: str) -> Iterator[StoredCluster]:
    folder = module_folder / "sep-mirrored"
    with StoredCluster(folder, f"sqlite:///{folder / 'ledger.db'}", publish_timeout_s=120) as running:
        running.start(endpoints=1, nodes=1)
        running.start_query(zookeeper, f"/sep-mirrored-{uuid.uuid4().hex}")
        yield running


class Mirror:
    """A table of HBase and the stored table that mirrors it."""

    def __init__(self, client: HBaseClient, cluster: StoredCluster, table: str, stored: TableName) -> None:
        self.client, self.cluster, self.table, self.stored = client, cluster, table, stored
        self.restart: Callable[[], object] = lambda: None
        self.zookeeper = ""

    def write(self, mutation: MutationProto) -> None:
        self.client.write(self.table, mutation)

    def scanned(self) -> dict[str, State]:
        rows: dict[str, State] = {}
        for row, cells in self.client.scan(self.table).items():
            a, b = cells.get("cf:a"), cells.get("df:b")
            number = None if a is None else struct.unpack(">q", a[1])[0]
            rows[row.decode()] = (number, None if b is None else b[1].decode())
        return rows

    def mirrored(self) -> dict[str, State]:
        asked = f"SELECT id, a, b FROM {self.stored.db}.{self.stored.name}"
        return {row: (a, b) for row, a, b in result_of(lambda: self.cluster.ask(asked), pymysql.MySQLError)}

    def wait_until_equal(self) -> None:
        try:
            until(lambda: self.mirrored() == self.scanned(), "a table that equals the scan", poll_s=0.2)
        except AssertionError as error:
            here, there = self.mirrored(), self.scanned()
            differ = {
                row: {"hbase": there.get(row), "table": here.get(row)}
                for row in sorted(here.keys() | there.keys())
                if here.get(row, "none") != there.get(row, "none")
            }
            raise AssertionError(f"rows differ: {differ}") from error


@pytest.fixture
def mirrored(
    cluster: StoredCluster,
    hbase: str,
    kafka: str,
    hbase_client: HBaseClient,
    unique_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., object]:
    """Mirror a table with the families of `row_lives`, of which two are declared."""
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    monkeypatch.setenv("RTOLAP_STREAM_LOAD_ENDPOINTS", ",".join(cluster.urls))

    name = unique_name.replace("__", "_")  # two are reserved

    @contextmanager
    def run(
        *,
        serial: bool = False,
        with_sequence: bool = True,
        older: Mapping[bytes, Mapping[str, bytes]] | None = None,
        poison: SubscriptionPoison = SubscriptionPoison(),
        consumers: int = 1,
    ) -> Iterator[Mirror]:
        stored = TableName("shop", name)
        sequence = (StoredColumn("sequence_id", "bigint"),) if with_sequence else ()
        cluster.tables.create(
            StoredTable(
                database=stored.db,
                name=stored.name,
                columns=(COLUMNS[0], *sequence, *COLUMNS[1:]),
                model="unique",
                keys=("id",),
                sequence_column="sequence_id" if with_sequence else None,
            )
        )
        families = [family.decode() for family in FAMILIES]
        table = hbase_client.create_table(name, families, splits=[ROWS[5]])
        for row, cells in (older or {}).items():
            hbase_client.write(table, mutations.put(row, cells))
        subscription = Subscription(
            name=name,
            source=HBaseSource(zookeeper=hbase),
            listener=SubscriptionListener(
                "stored_table",
                database=stored.db,
                table=stored.name,
                user=USER,
                password_file=str(password),
            ),
            tables={table: ()},
            serial=serial,
            consumers=consumers,
            poison=poison,
            row=RowColumn("id", "string"),
            columns={"a": CellColumn("cf:a", "long"), "b": CellColumn("df:b", "string")},
        )
        processes: list[ConsumerProcess] = []

        def start() -> None:
            processes.append(ConsumerProcess(name, hbase, kafka, tmp_path / f"{len(processes)}.log"))
            wait_for_leader(processes[-1:])

        with open_source(subscription.source) as source:
            create(source, subscription, SystemClock().now_ms() + 1)
            try:
                for _ in range(consumers):
                    start()
                mirror = Mirror(hbase_client, cluster, table, stored)
                mirror.zookeeper = hbase
                mirror.restart = lambda: (processes[-1].kill(), start())
                yield mirror
            finally:
                drop(source, name)
                for process in processes:
                    process.kill()

    return run


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize(
    ("serial", "with_sequence", "consumers"), [(False, True, 1), (True, False, 1), (False, True, 2)]
)
def test_after_random_lives_every_cell_is_that_of_hbases_scan(
    mirrored: Callable[..., object], serial: bool, with_sequence: bool, consumers: int
) -> None:
    """Several families, timestamps of any age, every kind of delete, whole calls; regions split and move, and
    a consumer is killed."""
    random = Random(25 + serial)
    options = {"serial": serial, "with_sequence": with_sequence, "consumers": consumers}
    with mirrored(**options) as mirror:  # type: ignore[attr-defined]
        client = mirror.client
        for turn in range(4):
            at = now_ms()
            for number in range(60):
                mirror.write(drawn_mutation(random, random.choice(ROWS), at, turn * 1000 + number))
            client.write_all(
                mirror.table,
                [drawn_mutation(random, row, at, turn * 1000 + 100) for row in random.sample(ROWS, 6)],
            )
            if turn == 0:
                client.split(client.regions(mirror.table)[0], ROWS[2])
            if turn == 1:
                for region in client.regions(mirror.table):
                    others = [each for each in client.region_servers() if each != region.server]
                    client.move(region, random.choice(others))
            if turn == 2:
                mirror.restart()
            if random.random() < 0.6:
                mirror.wait_until_equal()
        mirror.wait_until_equal()
        assert len(mirror.mirrored()) > 3


def verify(mirror: Mirror, *options: str) -> tuple[int, dict[str, object]]:
    """Return the exit code and the document of `rtolap sep verify`."""
    command = [sys.executable, "-m", "rtolap.cli.main", "sep", "verify", mirror.table, "--json", *options]
    environment = {
        **os.environ,
        "RTOLAP_HOST": HOST,
        "RTOLAP_QUERY_HTTP_PORT": mirror.cluster.query_url.rpartition(":")[2],
        "RTOLAP_TOKEN_FILE": str(mirror.cluster.folder / "token"),
        "RTOLAP_HBASE": f"{mirror.zookeeper}/hbase",
    }
    ended = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=patience_s(300), check=False
    )
    assert ended.returncode in (0, 3), ended.stdout + ended.stderr
    return ended.returncode, json.loads(ended.stdout)


@pytest.mark.parametrize("consumers", [1, 2])
def test_what_no_edit_tells_is_found_and_repaired(mirrored: Callable[..., object], consumers: int) -> None:
    """Times to live that end, a truncated table, rows that are older than the subscription."""
    older = {b"before": a(7), b"before too": {"zz:u": b"u"}}
    with mirrored(older=older, consumers=consumers) as mirror:  # type: ignore[attr-defined]
        for row in ROWS:
            mirror.write(mutations.put(row, a(1) | b("x")))
        mirror.write(mutations.put(b"short", a(1), ttl_ms=30_000))
        mirror.write(mutations.put(b"partly", a(1)))
        mirror.write(mutations.put(b"partly", b("x"), ttl_ms=30_000))
        until(lambda: len(mirror.mirrored()) == len(ROWS) + 2, "all that is shipped")
        until(lambda: b"short" not in mirror.client.scan(mirror.table), "the ends of the lives", poll_s=0.5)
        differing = {"extra": 1, "different": 1, "missing": 2}
        code, found = verify(mirror, "--pause", "200ms")
        assert (code, found["kinds"]) == (3, differing)
        code, found = verify(mirror, "--pause", "200ms", "--from-row", "p", "--to-row", "q")
        assert (code, found["kinds"]) == (3, {"different": 1})
        code, found = verify(mirror, "--pause", "200ms", "--repair")
        assert (code, found["repaired"], found["differ"]) == (0, 4, 0)
        assert mirror.mirrored() == mirror.scanned()
        mirror.client.truncate_table(mirror.table)
        mirror.write(mutations.put(ROWS[3], a(3)))
        until(lambda: mirror.mirrored()[ROWS[3].decode()] == (3, None), "the row behind the truncation")
        code, found = verify(mirror, "--pause", "200ms")
        assert (code, found["kinds"]) == (3, {"extra": len(ROWS) + 2})
        code, found = verify(mirror, "--pause", "200ms", "--repair")
        assert code == 0
        assert mirror.mirrored() == {ROWS[3].decode(): (3, None)}


@pytest.mark.parametrize("consumers", [1, 2])
def test_a_bad_row_holds_up_no_other_and_is_replayed_once_it_is_mended(
    mirrored: Callable[..., object], hbase: str, consumers: int
) -> None:
    policy = SubscriptionPoison(apart_after_s=4)
    with mirrored(poison=policy, consumers=consumers) as mirror:  # type: ignore[attr-defined]
        store, paths = mirror.client.store, SubscriptionPaths(mirror.table)

        def rows_apart() -> int:
            states = [read_state(store, paths.delivery_of(share, consumers)) for share in range(consumers)]
            return sum(-1 if state is None else state.rows_apart for state in states)

        bad = ROWS[0]
        mirror.write(mutations.put(bad, {"cf:a": b"no number", "zz:u": b"u" * (2 << 20)}))
        until(lambda: rows_apart() == 1, "the row apart", poll_s=0.2)
        for number, row in enumerate(ROWS[1:]):
            mirror.write(mutations.put(row, a(number)))
        until(lambda: len(mirror.mirrored()) == len(ROWS) - 1, "the other rows", poll_s=0.2)
        mirror.write(mutations.put(bad, a(5)))
        mirror.write(mutations.put(ROWS[1], a(77)))
        until(lambda: mirror.mirrored()[ROWS[1].decode()] == (77, None), "what comes behind", poll_s=0.2)
        assert bad.decode() not in mirror.mirrored()
        command = [sys.executable, "-m", "rtolap.cli.main", "sep", "dead-letters", mirror.table, "--replay"]
        subprocess.run([*command, "--cluster", f"{hbase}/hbase"], check=True, timeout=patience_s(60))
        mirror.wait_until_equal()
        until(lambda: rows_apart() == 0, "no row apart", poll_s=0.2)
        mirror.write(mutations.put(bad, a(6)))
        mirror.wait_until_equal()


def a(number: int) -> dict[str, bytes]:
    return {"cf:a": struct.pack(">q", number)}


def b(text: str) -> dict[str, bytes]:
    return {"df:b": text.encode()}


def test_every_named_case_is_as_in_hbase(mirrored: Callable[..., object]) -> None:
    """Each on a row of its own; the scan is HBase's, and what it says of some is written here too."""
    at, future = now_ms() - 1_000_000, now_ms() + 3_600_000
    cases: dict[str, list[MutationProto]] = {
        "older": [
            mutations.put(b"older", a(2), timestamp_ms=at),
            mutations.put(b"older", a(1), timestamp_ms=at - 5),
        ],
        "one-version": [
            mutations.put(b"one-version", a(1), timestamp_ms=at - 5),
            mutations.put(b"one-version", a(2), timestamp_ms=at),
            mutations.delete_version(b"one-version", "cf:a", at),
        ],
        "older-version": [
            mutations.put(b"older-version", a(1), timestamp_ms=at - 5),
            mutations.put(b"older-version", a(2), timestamp_ms=at),
            mutations.delete_version(b"older-version", "cf:a", at - 5),
        ],
        "older-column": [
            mutations.put(b"older-column", a(2), timestamp_ms=at),
            mutations.delete_column(b"older-column", "cf:a", at - 1),
        ],
        "one-family": [
            mutations.put(b"one-family", a(1) | b("x")),
            mutations.delete_family(b"one-family", "cf"),
        ],
        "undeclared-family": [
            mutations.put(b"undeclared-family", a(1) | b("x") | {"zz:u": b"u"}),
            mutations.delete_family(b"undeclared-family", "zz"),
        ],
        "older-row": [
            mutations.put(b"older-row", a(1), timestamp_ms=at - 5),
            mutations.put(b"older-row", b("new"), timestamp_ms=at),
            mutations.delete_row(b"older-row", at - 1),
        ],
        "family-version": [
            mutations.put(b"family-version", a(1), timestamp_ms=at - 5),
            mutations.put(b"family-version", a(2), timestamp_ms=at),
            mutations.delete_family_version(b"family-version", "cf", at),
        ],
        "same-ms": [
            mutations.put(b"same-ms", a(1), timestamp_ms=at),
            mutations.delete_column(b"same-ms", "cf:a", at),
            mutations.put(b"same-ms", b("stays"), timestamp_ms=at),
        ],
        "hidden-put": [
            mutations.delete_row(b"hidden-put", at),
            mutations.put(b"hidden-put", a(1), timestamp_ms=at - 1),
        ],
        "future": [
            mutations.put(b"future", a(9), timestamp_ms=future),
            mutations.put(b"future", a(1)),
            mutations.delete_row(b"future"),
        ],
        "all-columns-gone": [
            mutations.put(b"all-columns-gone", a(1) | b("x")),
            mutations.delete_column(b"all-columns-gone", "cf:a"),
            mutations.delete_column(b"all-columns-gone", "df:b"),
        ],
        "undeclared-alone": [mutations.put(b"undeclared-alone", {"zz:u": b"u"})],
    }
    with mirrored() as mirror:  # type: ignore[attr-defined]
        for edits in cases.values():
            for edit in edits:
                mirror.write(edit)
        mirror.wait_until_equal()
        assert mirror.mirrored() == {
            "older": (2, None),
            "one-version": (1, None),
            "older-version": (2, None),
            "older-column": (2, None),
            "one-family": (None, "x"),
            "undeclared-family": (1, "x"),
            "older-row": (None, "new"),
            "family-version": (1, None),
            "same-ms": (None, "stays"),
            "future": (9, None),
            "undeclared-alone": (None, None),
        }
