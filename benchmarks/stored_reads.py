"""The cost of a group-by over a stored table: memory of the query service and the node, processor time, rows.

    python -m benchmarks.stored_reads [--rows 5000000] [--json]

A front end, a storage node and a query service run as processes. The same statement is asked twice: as nodes
work on it, and beside a join, for which nodes send rows.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pymysql import MySQLError
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import SendOptions

from benchmarks.process_figures import cpu_s
from benchmarks.servers import zookeeper
from tests.support.stored.stored_cluster import StoredCluster
from tests.support.stored.stream_load_cluster import PASSWORD, USER

LOAD_ROWS = 1_000_000
GROUPS = 200
GROUP_BY = "select host, count(*), sum(amount), max(at) from web.visits {beside} group by host order by host"
BESIDE = {"nodes": "", "rows": "join (select 1 as one) as beside"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--only-nodes", action="store_true", help="leave out the statement that reads rows")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, zookeeper() as address:
        folder = Path(name) / "cluster"
        with StoredCluster(folder, f"sqlite:///{folder / 'ledger.db'}") as cluster:
            cluster.start(endpoints=1, nodes=1)
            cluster.start_query(address, "/stored-reads")
            load(cluster, chosen.rows)
            for way in ("nodes",) if chosen.only_nodes else ("nodes", "rows"):
                figures = measure(cluster, way) | {"rows": chosen.rows}
                print(
                    json.dumps(figures)
                    if chosen.json
                    else "  ".join(f"{key} {value}" for key, value in figures.items()),
                    flush=True,
                )


def load(cluster: StoredCluster, rows: int) -> None:
    """Load rows into a duplicate table of four buckets."""
    cluster.ask("create database web")
    cluster.ask(
        "create table web.visits (id bigint not null, host varchar(20), amount decimal(9,2), at datetime) "
        "duplicate key(id) distributed by hash(id) buckets 4 properties ('replication_num' = '1')"
    )
    rng = np.random.default_rng(1)
    options = SendOptions(format="parquet", columns=("id", "host", "amount", "at"), timeout_s=600)
    hosts = pa.array([f"host-{at:05}" for at in range(GROUPS)])
    with StreamLoadClient(cluster.urls, USER, PASSWORD) as client:
        for start in range(0, rows, LOAD_ROWS):
            count = min(LOAD_ROWS, rows - start)
            table = pa.table(
                {
                    "id": pa.array(np.arange(start, start + count)),
                    "host": hosts.take(pa.array(rng.integers(0, GROUPS, count))),
                    "amount": pa.array(rng.integers(0, 10_000, count), pa.int16()).cast(pa.decimal128(9, 2)),
                    "at": pa.array(rng.integers(0, 10**15, count)).cast(pa.timestamp("us")),
                }
            )
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink)
            answer = client.load("web", "visits", f"part-{start}", sink.getvalue().to_pybytes(), options)
            assert answer.status == "Success", answer


def measure(cluster: StoredCluster, way: str) -> dict[str, object]:
    """Ask once, and return what the answer cost."""
    query, node = (psutil.Process(cluster.processes[name].pid()) for name in ("query", "node-0"))
    services = {"query": [query, *query.children(recursive=True)], "node": [node]}
    before = {name: sum(map(cpu_s, processes)) for name, processes in services.items()}
    began_s = time.monotonic()
    try:
        outcome: object = len(cluster.ask(GROUP_BY.format(beside=BESIDE[way])))
    except MySQLError as error:
        outcome = str(error)[:120]
    figures: dict[str, object] = {
        "way": way,
        "result_rows": outcome,
        "seconds": round(time.monotonic() - began_s, 2),
    }
    for name, processes in services.items():
        figures[f"{name}_peak_mb"] = sum(map(peak_mb, processes))
        figures[f"{name}_cpu_s"] = round(sum(map(cpu_s, processes)) - before[name], 2)
    return figures


def peak_mb(process: psutil.Process) -> int:
    """Return the most memory that the process has had resident."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) >> 10
    return 0


if __name__ == "__main__":
    main()
