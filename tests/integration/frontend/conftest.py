"""An endpoint and storage nodes as processes of their own, on a ledger in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.protocols.stored_tables.messages import TableName

from tests.support.stored.stream_load_cluster import StreamLoadCluster


def columns(*, aggregated: bool = False) -> tuple[StoredColumn, ...]:
    return (
        StoredColumn("id", "int", nullable=False),
        StoredColumn("host", "string", aggregate="REPLACE" if aggregated else None),
        StoredColumn("amount", "decimal(10,2)", aggregate="SUM" if aggregated else None),
        StoredColumn("at", "timestamp", aggregate="MAX" if aggregated else None),
    )


@pytest.fixture(scope="package")
def cluster(owned: None, server_folder: Path) -> Iterator[StreamLoadCluster]:
    folder = server_folder / "stream-load"
    with StreamLoadCluster(folder, f"sqlite:///{folder / 'ledger.db'}") as running:
        running.start(endpoints=1, nodes=1)
        yield running


@pytest.fixture
def table(cluster: StreamLoadCluster, unique_name: str) -> TableName:
    """A duplicate table `web.<unique>`, without partitions, of two buckets."""
    name = f"t_{unique_name[-8:]}"
    cluster.tables.create(StoredTable(database="web", name=name, columns=columns(), keys=("id",)))
    return TableName("web", name)


@pytest.fixture
def unique_table(cluster: StreamLoadCluster, unique_name: str) -> TableName:
    """A unique table `web.<unique>` that rows may be deleted from."""
    name = f"t_{unique_name[-8:]}"
    cluster.tables.create(
        StoredTable(database="web", name=name, columns=columns(), keys=("id",), model="unique")
    )
    return TableName("web", name)
