"""Raw rows of stored tables are in the query service once: in the memory that the engine's worker maps."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest
from rtolap.model.stored.table import Buckets, StoredColumn, StoredTable
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.query.workers import messages

from tests.support.query.query_world import QueryWorld
from tests.support.stored.stored_world import StoredWorld

NAME = TableName("shop", "wide")
ROWS, TEXT_BYTES, BUCKETS = 40_000, 500, 64
HELD_MAX = 1.4  # of the relation: what the engine has, and the tablets that are just read


def test_rows_that_are_collected_are_in_the_service_once(
    world: QueryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    write = messages.RelationMemory.write

    def watched(memory: messages.RelationMemory, rows: pa.RecordBatch | pa.Table) -> None:
        write(memory, rows)
        held.append(pa.total_allocated_bytes() - before + os.fstat(memory.descriptor).st_size)

    with StoredWorld(replication=1) as stored:
        stored.catalogue.create_table(
            StoredTable(
                database=NAME.db,
                name=NAME.name,
                columns=(StoredColumn("id", "int"), StoredColumn("text", "string")),
                keys=("id",),
                buckets=Buckets(BUCKETS, ("id",)),
            )
        )
        stored.load(NAME, [{"id": at, "text": f"{at:0{TEXT_BYTES}}"} for at in range(ROWS)])
        service = world.service(stored=stored.source, in_workers=True)
        try:
            service.execute(f"select count(*) n from {NAME.db}.{NAME.name}").table()
            monkeypatch.setattr(messages.RelationMemory, "write", watched)
            before = pa.total_allocated_bytes()
            beside = f"{NAME.db}.{NAME.name} join (select 1 as one) as beside"
            (row,) = service.execute(f"select sum(length(text)) n from {beside}").table().to_pylist()
        finally:
            service.close()
    assert int(row["n"]) == ROWS * TEXT_BYTES
    assert len(held) >= BUCKETS, "the rows came in one piece"
    assert max(held) <= HELD_MAX * ROWS * TEXT_BYTES, f"{max(held) / (ROWS * TEXT_BYTES):.2f} times the rows"
    print(f"{max(held) / (ROWS * TEXT_BYTES):.2f} times the rows")
