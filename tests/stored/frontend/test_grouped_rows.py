"""Rows that wait for their group belong to the table for which they were read, whatever becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from rtolap.model.stored.table import Buckets, StoredColumn, StoredTable
from rtolap.protocols.storage.messages import ScanRequest, TabletId
from rtolap.protocols.stored_tables.messages import RenameColumn
from rtolap.protocols.stream_load.messages import LoadAnswer
from rtolap.stored.engine.routing import RoutedPart
from rtolap.stored.frontend.transactions.publishing import Visibility
from rtolap.stored.stream_load.committing import Committing
from rtolap.stored.stream_load.distribution import Tables
from rtolap.stored.stream_load.error_files import ErrorFiles
from rtolap.stored.stream_load.group_commit import GroupCommit
from rtolap.stored.stream_load.load import LoadServices
from rtolap.stored.stream_load.request import LoadRequest
from rtolap.stored.stream_load.table_entry import TableEntry
from rtolap.stored.stream_load.writer import LoadWriter

from tests.support.stored.replicated_table import ReplicatedTable

REQUEST = LoadRequest(db="shop", table="g", label="")
ROWS = pa.record_batch(
    {name: pa.array([value], pa.int32()) for name, value in (("id", 1), ("a", 10), ("b", 20))}
)
LAST = 3  # the bucket that they are routed to


def definition(buckets: int) -> StoredTable:
    columns = tuple(StoredColumn(name, "int") for name in ("id", "a", "b"))
    return StoredTable(
        database="shop", name="g", columns=columns, keys=("id",), model="unique", buckets=Buckets(buckets)
    )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ReplicatedTable]:
    with ReplicatedTable(tmp_path) as made:
        made.catalogue.create_table(definition(LAST + 1))
        yield made


def carried_out_after(world: ReplicatedTable, folder: Path, change: Callable[[], object]) -> LoadAnswer:
    """What rows are answered that were routed before the change."""

    def open_writer(txn_id: int, table: TableEntry, partial: bool) -> LoadWriter:
        return LoadWriter(world.nodes, txn_id, table.table_id, table.schema, table.replicas, partial=partial)

    visibility = Visibility(world.manager, world.publisher)
    visibility.wake = visibility.publish
    services = LoadServices(
        Committing(world.manager, visibility),
        Tables(world.catalogue, open_writer),
        ErrorFiles(folder / "errors", "http://unused"),
    )
    groups = GroupCommit(services, interval_s=0.0)
    before = world.catalogue.table("shop", "g")
    change()
    return groups._join(REQUEST, before, [RoutedPart("all", LAST, ROWS)])


def found(world: ReplicatedTable, version: int) -> list[dict[str, int]]:
    table = world.catalogue.table("shop", "g")
    rows: list[dict[str, int]] = []
    for bucket in range(table.definition.buckets.count):
        tablet = TabletId(table.table_id, "shop", "g", "all", bucket, 1)
        for batch in world.nodes.at("a").scan(ScanRequest(tablet, table.schema, version)):
            rows += batch.to_pylist()
    return rows


def test_rows_are_visible_when_they_are_told_to_be(world: ReplicatedTable, tmp_path: Path) -> None:
    assert carried_out_after(world, tmp_path, lambda: None).status == "Success"
    assert found(world, 1) == [{"id": 1, "a": 10, "b": 20}]


def test_columns_that_swap_their_names_keep_their_values(world: ReplicatedTable, tmp_path: Path) -> None:
    swap = (RenameColumn("a", "t"), RenameColumn("b", "a"), RenameColumn("t", "b"))
    answer = carried_out_after(world, tmp_path, lambda: world.catalogue.change_columns("shop", "g", swap))
    assert answer.status == "Success"
    assert found(world, 1) == [{"id": 1, "b": 10, "a": 20}]


@pytest.mark.parametrize("buckets", [2, LAST + 1])
def test_rows_for_a_table_that_was_recreated_fail_and_say_so(
    world: ReplicatedTable, tmp_path: Path, buckets: int
) -> None:
    def recreated() -> None:
        world.catalogue.drop_table("shop", "g")
        world.catalogue.create_table(definition(buckets))

    answer = carried_out_after(world, tmp_path, recreated)
    assert (answer.status, "was recreated while rows for it waited" in answer.message) == ("Fail", True)
    assert found(world, 0) == []
