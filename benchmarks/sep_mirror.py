"""HBase change capture: rows of a stored table per second, read again from a real HBase and not read again.

    python -m benchmarks.sep_mirror [--rows 20000] [--rounds 3] [--json]

The same edits, a put of two cells each in calls of 1000 rows, become rows to load twice in one run, best of
the rounds:

    duplicate   each edit is a row, made of its own cells
    unique      each changed row is read again from HBase, in calls of many rows

HBase has two region servers in one process, on this machine; the table has two regions. Loading is left out
of both. `ratio` is duplicate to unique.
"""

from __future__ import annotations

import argparse
import json
import struct
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from rtolap.metadata.zookeeper import ZooKeeperStore
from rtolap.model.subscription import CellColumn, HBaseSource, Subscription, SubscriptionListener
from rtolap.protocols.stream_load.messages import SchemaColumn, TableSchema
from rtolap.sep.events.decode import EditDecoder
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.listeners.assembly import event_columns, open_row_reader
from rtolap.sep.listeners.table_rows import TableRows

from benchmarks.servers import hbase
from tests.support.hbase import mutations
from tests.support.hbase.client import HBaseClient
from tests.support.sep.wal_calls import Cell, Entry, encode_call

TABLE, CALL_ROWS = "mirrored", 1000
PROPERTIES = tuple(
    SchemaColumn(name, kind) for name, kind in (("id", "VARCHAR"), ("amount", "BIGINT"), ("city", "VARCHAR"))
)


def write(address: str, rows: Sequence[bytes]) -> list[EditBatch]:
    """Write the rows, and return the edits as HBase would ship them."""
    batches = []
    with HBaseClient(address) as client:
        client.create_table(TABLE, ("cf",), splits=[rows[len(rows) // 2]])
        regions = client.regions(TABLE)
        for first in range(0, len(rows), CALL_ROWS):
            some = rows[first : first + CALL_ROWS]
            cells = {
                row: {"cf:amount": struct.pack(">q", at), "cf:city": b"Bern"} for at, row in enumerate(some)
            }
            client.write_all(TABLE, [mutations.put(row, cells[row]) for row in some])
            entries = [
                Entry(
                    tuple(
                        Cell(row, name.partition(":")[2].encode(), value)
                        for name, value in cells[row].items()
                    ),
                    sequence_id=1,
                    table=TABLE,
                    region=next(region.encoded for region in regions if region.holds(row)),
                )
                for row in some
            ]
            batches.append(EditDecoder().decode(*encode_call(entries)).batch)
    return batches


def rows_per_s(table: TableRows, batches: Sequence[EditBatch]) -> float:
    """Return mirrored rows a second. Raises AssertionError where a row is missing."""
    made, started_s = 0, time.perf_counter()
    for batch in batches:
        for prepared in table.prepared(batch, np.zeros(batch.num_events, bool)):
            assert not prepared.refused
            made += sum(load.rows.num_rows for load in prepared.loads)
    took_s = time.perf_counter() - started_s
    assert made == sum(batch.num_events for batch in batches), made
    return made / took_s


def measure(address: str, row_count: int, rounds: int) -> dict[str, Any]:
    subscription = Subscription(
        name="bench",
        source=HBaseSource(address),
        tables={TABLE: ("cf",)},
        columns={"amount": CellColumn("cf:amount", "long"), "city": CellColumn("cf:city", "string")},
        listener=SubscriptionListener("stored_table", database="bench", table="bench"),
    )
    row_name = subscription.row.name
    properties = (SchemaColumn(row_name, "VARCHAR"), *PROPERTIES[1:])
    batches = write(address, [b"row-%09d" % at for at in range(row_count)])
    store = ZooKeeperStore(address, root="/")
    try:
        columns = event_columns(subscription)
        duplicate = TableRows(columns, TableSchema(properties=properties))
        source = open_row_reader(subscription, store)
        unique = TableRows(columns, TableSchema(keys_type="UNIQUE_KEYS", properties=properties), source)
        rates = {"duplicate": 0.0, "unique": 0.0}
        for _ in range(rounds):
            rates["duplicate"] = max(rates["duplicate"], rows_per_s(duplicate, batches))
            rates["unique"] = max(rates["unique"], rows_per_s(unique, batches))
        unique.close()
    finally:
        store.close()
    return {
        "rows": row_count,
        "duplicate_rows_per_s": round(rates["duplicate"]),
        "unique_rows_per_s": round(rates["unique"]),
        "ratio": round(rates["duplicate"] / rates["unique"], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with hbase() as address:
        figures = measure(address, arguments.rows, arguments.rounds)
    if arguments.json:
        print(json.dumps(figures, indent=2))
        return
    for name, figure in figures.items():
        print(f"{name:24} {figure:>12,}")


if __name__ == "__main__":
    main()
