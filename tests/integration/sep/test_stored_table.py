"""Edits of rows, whole and in part, late and repeated, are the rows of a real unique table."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from rtolap.base.clock import SystemClock
from rtolap.kafka.memory.broker import MemoryBroker
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.sep.delivery.delivery import Delivery
from rtolap.sep.events.edit_batch import CellType
from rtolap.sep.listeners.event_columns import ColumnSource, EventColumns
from rtolap.sep.listeners.stored_table import StoredTableListener
from rtolap.sep.listeners.table_rows import TableRows

from tests.sep.delivery.test_delivery import journal_of, run
from tests.support.sep.batches import Cell, Event, batch_of
from tests.support.stored.stream_load_cluster import PASSWORD, USER, StreamLoadCluster

pytestmark = pytest.mark.integration

COLUMNS = EventColumns(
    {"a": ColumnSource(b"cf", b"a", "long"), "b": ColumnSource(b"cf", b"b", "string")}, ("id", "string")
)
ORDERS = TableName("shop", "orders")
EDITS, ROWS = 300, 12


@pytest.fixture(scope="module")
def cluster(owned: None, server_folder: Path) -> Iterator[StreamLoadCluster]:
    folder = server_folder / "sep-stored"
    with StreamLoadCluster(folder, f"sqlite:///{folder / 'ledger.db'}", publish_timeout_s=120) as running:
        running.start(endpoints=1, nodes=1)
        columns = (
            StoredColumn("id", "string", nullable=False),
            StoredColumn("sequence_id", "bigint"),
            StoredColumn("a", "bigint"),
            StoredColumn("b", "string"),
        )
        running.tables.create(
            StoredTable(
                database=ORDERS.db,
                name=ORDERS.name,
                columns=columns,
                model="unique",
                keys=("id",),
                sequence_column="sequence_id",
            )
        )
        yield running


def test_the_table_is_what_the_edits_make_of_their_rows(cluster: StreamLoadCluster) -> None:
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
        table = TableRows(COLUMNS, client.schema(ORDERS.db, ORDERS.name))
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
