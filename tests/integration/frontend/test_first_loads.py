"""Loads that come at once and need the same new partitions, over HTTP at a real endpoint with three nodes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from pathlib import Path
from threading import Barrier

import pytest
from rtolap.model.stored.table import RangePartitions, StoredColumn, StoredTable
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import SendOptions

from tests.support.stored.stream_load_cluster import PASSWORD, USER, StreamLoadCluster

LOADS, ROUNDS, DAYS, ROWS = 4, 5, 3, 50
FIRST_DAY = date(2024, 5, 1)
VISITS = TableName("web", "visits")
OPTIONS = SendOptions(
    format="csv", headers={"column_separator": ",", "columns": "day,load_id,number"}, timeout_s=180
)


@pytest.fixture(scope="module")
def cluster(owned: None, module_folder: Path) -> Iterator[StreamLoadCluster]:
    """A load that has to wait for its publishing, on a slow machine, is told only when it is visible."""
    folder = module_folder / "first-loads"
    with StreamLoadCluster(folder, f"sqlite:///{folder / 'ledger.db'}", publish_timeout_s=120) as running:
        running.start(endpoints=1, nodes=3)
        columns = (
            StoredColumn("day", "date", nullable=False),
            StoredColumn("load_id", "int"),
            StoredColumn("number", "int"),
        )
        running.tables.create(
            StoredTable(
                database=VISITS.db,
                name=VISITS.name,
                columns=columns,
                keys=("day",),
                partitions=RangePartitions("day", "day", 0, None, True),
            )
        )
        yield running


def test_parallel_first_loads_into_the_same_partitions_all_succeed(cluster: StreamLoadCluster) -> None:
    expected: list[tuple[date, int, int]] = []
    for number in range(ROUNDS):
        days = [FIRST_DAY + timedelta(days=number * DAYS + day) for day in range(DAYS)]
        sent = [[(day, load_id, row) for day in days for row in range(ROWS)] for load_id in range(LOADS)]
        together = Barrier(LOADS)

        def load(
            rows: list[tuple[date, int, int]], number: int = number, together: Barrier = together
        ) -> str:
            label = f"visits-{number}-{rows[0][1]}"
            body = "\n".join(",".join(map(str, row)) for row in rows).encode()
            with StreamLoadClient(cluster.urls, USER, PASSWORD) as client:
                together.wait(60)
                answer = client.load(VISITS.db, VISITS.name, label, body, OPTIONS)
            assert answer.number_loaded_rows == len(rows), answer
            return answer.status

        with ThreadPoolExecutor(LOADS) as pool:
            assert list(pool.map(load, sent)) == ["Success"] * LOADS, f"partitions of {days}"
        expected += [row for rows in sent for row in rows]
        found = sorted((row["day"], row["load_id"], row["number"]) for row in cluster.rows(VISITS))
        assert found == sorted(expected), "every row once, and none of a load that was not asked for"
