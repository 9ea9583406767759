"""Edits of rows, whole and in part, late and repeated, are the rows of a real unique table."""

from __future__ import annotations

import os
import signal
import sqlite3
import struct
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from random import Random

import pymysql
import pytest
from rtolap.base.clock import SystemClock
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.model.subscription import CellColumn, HBaseSource, RowColumn, Subscription, SubscriptionListener
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.sep.delivery.delivery import Delivery
from rtolap.sep.events.edit_batch import CellType
from rtolap.sep.listeners.event_columns import ColumnSource, EventColumns
from rtolap.sep.listeners.stored_table import StoredTableListener
from rtolap.sep.listeners.table_rows import TableRows
from rtolap.sep.subscriptions.commands import create, drop
from rtolap.sep.subscriptions.source import open_source
from rtolap.stack.process import ManagedProcess
from rtolap.stored.stream_load import messages

from tests.sep.delivery.test_delivery import journal_of, run
from tests.support.hbase.client import HBaseClient
from tests.support.sep.batches import Cell, Event, batch_of
from tests.support.sep.consumers import ConsumerProcess, wait_for_leader
from tests.support.sep.rewritten_rows import RewrittenRows, State
from tests.support.sep.row_lives import ModelRows
from tests.support.stored.stored_cluster import StoredCluster
from tests.support.stored.stream_load_cluster import PASSWORD, USER
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.waiting import result_of, until

pytestmark = pytest.mark.integration

COLUMNS = EventColumns(
    {"a": ColumnSource(b"cf", b"a", "long"), "b": ColumnSource(b"cf", b"b", "string")}, ("id", "string")
)
ORDERS, FOLLOWED = TableName("shop", "orders"), TableName("shop", "followed")
EDITS, ROWS = 300, 12


@pytest.fixture(scope="module")
def cluster(owned: None, module_folder: Path, zookeeper: str) -> Iterator[StoredCluster]:
    folder = module_folder / "sep-stored"
    with StoredCluster(folder, f"sqlite:///{folder / 'ledger.db'}", publish_timeout_s=120) as running:
        running.start(endpoints=1, nodes=1)
        running.start_query(zookeeper, f"/sep-stored-{uuid.uuid4().hex}")
        columns = (
            StoredColumn("id", "string", nullable=False),
            StoredColumn("sequence_id", "bigint"),
            StoredColumn("a", "bigint"),
            StoredColumn("b", "string"),
        )
        for table in (ORDERS, FOLLOWED):
            running.tables.create(
                StoredTable(
                    database=table.db,
                    name=table.name,
                    columns=columns,
                    model="unique",
                    keys=("id",),
                    sequence_column="sequence_id",
                )
            )
        yield running


def test_the_table_is_what_the_edits_make_of_their_rows(cluster: StoredCluster) -> None:
    random = Random(7)
    rows: dict[str, dict[str, object]] = {}
    events = []
    for at in range(1, EDITS + 1):
        row = f"row-{random.randrange(ROWS)}"
        if random.random() < 0.15:
            cells = (Cell(b"", type=CellType.DELETE_FAMILY, timestamp_ms=at),)
            rows.pop(row, None)
        else:
            names = random.choice(("a", "b", "ab"))
            values = {"a": struct.pack(">q", at), "b": f"text {at}".encode()}
            cells = tuple(Cell(name.encode(), values[name], timestamp_ms=at) for name in names)
            kept = rows.setdefault(row, {"a": None, "b": None})
            kept |= {name: {"a": at, "b": f"text {at}"}[name] for name in names}
        events.append(Event("region", at, row.encode(), at, cells=cells))
    with StreamLoadClient(cluster.urls, USER, PASSWORD) as client:
        written = [(event.row, (event.sequence_id, event.cells)) for event in events]
        source = ModelRows(
            lambda row: [edit for of, edit in written if of == row], ((b"cf", b"a"), (b"cf", b"b"))
        )
        table = TableRows(COLUMNS, client.schema(ORDERS.db, ORDERS.name), source)
        listener = StoredTableListener(
            client, ORDERS.db, ORDERS.name, table, SystemClock(), f"sep_{uuid.uuid4().hex[:8]}"
        )
        process = Delivery(listener, journal_of(MemoryBroker()), SystemClock())
        first = 0
        while first < EDITS:
            end = first + random.randint(20, 120)
            again = max(0, first - 10)  # with borders of its own
            assert run(process, batch_of(events[again:end])) == [None]
            first = end
        stored = {row["id"]: {"a": row["a"], "b": row["b"]} for row in cluster.rows(ORDERS, ("id", "a", "b"))}
    assert stored == rows
    assert process.counts.delivered == EDITS


def test_the_table_equals_a_scan_of_hbase_though_everything_around_is_killed(
    cluster: StoredCluster,
    hbase: str,
    hbase_server: ManagedProcess,
    kafka: str,
    hbase_client: HBaseClient,
    unique_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Storage node, consumer, front end in mid-load, all of HBase; in between, rows are as they were once."""
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    monkeypatch.setenv("RTOLAP_STREAM_LOAD_ENDPOINTS", ",".join(cluster.urls))
    table = hbase_client.create_table(unique_name, splits=[b"row-5"])
    subscription = Subscription(
        name=unique_name,
        source=HBaseSource(zookeeper=hbase),
        listener=SubscriptionListener(
            "stored_table",
            database=FOLLOWED.db,
            table=FOLLOWED.name,
            user=USER,
            password_file=str(password),
        ),
        tables={table: ("cf",)},
        row=RowColumn("id", "string"),
        columns={"a": CellColumn("cf:a", "long"), "b": CellColumn("cf:b", "string")},
    )

    rows = RewrittenRows(hbase_client, table, Random(3), partial(_stored, cluster))
    processes: list[ConsumerProcess] = []

    def start() -> None:
        processes.append(ConsumerProcess(unique_name, hbase, kafka, tmp_path / f"{len(processes)}.log"))
        wait_for_leader(processes[-1:])

    with open_source(subscription.source) as source:
        create(source, subscription, SystemClock().now_ms())
        try:
            start()
            for _ in range(2):
                rows.write(20)
                cluster.processes["node-0"].kill()
                cluster.processes["node-0"].start()
                rows.look()
            rows.write(20)
            processes[0].kill()
            start()
            rows.write(20)
            until(rows.look, "a table without a load under way", poll_s=0.2)
            with _standing_still(cluster.processes["node-0"]):
                rows.write(1)
                label = _label_under_way(cluster)
                cluster.kill("endpoint-0")
            cluster.restart("endpoint-0")
            closed = [(label, "ABORTED", messages.LABEL_CLOSED)]  # until it is given back, minutes later
            until(lambda: _transactions(cluster, "label", label) == closed, "a closed label", poll_s=0.05)
            rows.write(20)
            rows.look()
            hbase_server.kill()
            hbase_server.start()
            rows.write(20)
            until(rows.look, "a table that equals the scan", poll_s=0.2)
        finally:
            drop(source, unique_name)
            for process in processes:
                process.kill()


@contextmanager
def _standing_still(process: ManagedProcess) -> Iterator[None]:
    pid = process.pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _label_under_way(cluster: StoredCluster) -> str:
    """Return the label of the load that the front end has begun and not committed."""
    until(lambda: _transactions(cluster, "state", "PREPARE"), "a load under way", poll_s=0.05)
    return _transactions(cluster, "state", "PREPARE")[0][0]


def _transactions(cluster: StoredCluster, column: str, value: str) -> list[tuple[str, str, str]]:
    """Return label, state and reason of each, from the ledger."""
    with closing(sqlite3.connect(f"file:{cluster.folder / 'ledger.db'}?mode=ro", uri=True)) as ledger:
        asked = f"SELECT label, state, reason FROM load_transaction WHERE {column} = ?"
        return ledger.execute(asked, (value,)).fetchall()


def _stored(cluster: StoredCluster) -> dict[str, State]:
    """Return what SQL says. MySQLError: the storage node has just started."""
    asked = f"SELECT id, a, b FROM {FOLLOWED.db}.{FOLLOWED.name}"
    return {row: (a, b) for row, a, b in result_of(lambda: cluster.ask(asked), pymysql.MySQLError)}
