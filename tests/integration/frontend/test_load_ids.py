"""A load is found again in the logs of all processes that it went through, by its label and transaction."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import SendOptions

from tests.support.stored.stream_load_cluster import PASSWORD, USER, StreamLoadCluster
from tests.support.waiting import until

HITS = TableName("web", "hits")
OPTIONS = SendOptions(format="csv", headers={"column_separator": ","}, timeout_s=180)


@pytest.fixture(scope="module")
def cluster(owned: None, module_folder: Path) -> Iterator[StreamLoadCluster]:
    """One that logs all that it does, as JSON."""
    folder = module_folder / "load-ids"
    logs = {"RTOLAP_LOG_LEVEL": "DEBUG", "RTOLAP_LOG_FORMAT": "json"}
    with StreamLoadCluster(folder, f"sqlite:///{folder / 'ledger.db'}", settings=logs) as running:
        running.start(endpoints=1, nodes=1)
        columns = (StoredColumn("id", "int", nullable=False), StoredColumn("host", "string"))
        running.tables.create(StoredTable(database=HITS.db, name=HITS.name, columns=columns, keys=("id",)))
        yield running


def lines(cluster: StreamLoadCluster, process: str) -> list[dict[str, Any]]:
    found = []
    for path in (cluster.folder / process).rglob("*.log"):
        for line in path.read_text(errors="replace").splitlines():
            try:
                parsed = json.loads(line)
            except ValueError:
                continue  # of another's, such as a library that writes to standard error
            if isinstance(parsed, dict):
                found.append(parsed)
    return found


def test_a_load_leads_from_the_front_end_to_the_storage_nodes_log(cluster: StreamLoadCluster) -> None:
    labels = [f"hits-{time.time_ns()}-{number}" for number in range(2)]
    with StreamLoadClient(cluster.urls, USER, PASSWORD) as client:
        transactions = {
            label: client.load(HITS.db, HITS.name, label, b"1,a\n2,b\n", OPTIONS).txn_id for label in labels
        }
    for label in labels:

        def calls(label: str = label) -> set[str]:
            found = [line for line in lines(cluster, "node-0") if line.get("load") == label]
            assert {line["transaction"] for line in found} <= {str(transactions[label])}
            return {line["message"].split()[0] for line in found if line["logger"].endswith("flight_server")}

        until(lambda: "do_exchange" in calls(), "the node's log has the load's rows", timeout_s=30.0)
        of_door = [line for line in lines(cluster, "endpoint-0") if line.get("load") == label]
        assert any("_stream_load" in line["message"] for line in of_door)
    assert not [line for line in lines(cluster, "node-0") if line.get("load") not in (None, *labels)]
