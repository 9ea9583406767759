"""The processor time of a row over one door and over several: at front ends, and at storage nodes.

A door is a process that takes bodies of loads. Each gets a body of its own at the same time, and all of them
load the same table; `cpu_us_per_row` counts all processes of the cluster.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rtolap.model.stored.table import StoredTable
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import SendOptions

from benchmarks.process_figures import ClusterWatch
from tests.support.stored.stream_load_cluster import PASSWORD, USER, StreamLoadCluster


def measure_doors(
    folder: Path, doors: tuple[int, ...], table: StoredTable, body: bytes, rows: int, rounds: int
) -> list[dict[str, object]]:
    """Return a line for each kind of door and each number of them, the best of so many rounds."""
    most = max(doors)
    cluster = StreamLoadCluster(folder, f"sqlite:///{folder / 'ledger.db'}")
    with cluster:
        cluster.start(endpoints=most, nodes=most, nodes_take_bodies=True)
        cluster.tables.create(table)
        lines: list[dict[str, object]] = []
        for kind, urls in (("front end", cluster.body_urls), ("storage node", cluster.node_body_urls)):
            for count in doors:
                label = f"{kind.replace(' ', '-')}-{count}"
                found = [
                    _round(cluster, table, urls[:count], f"{label}-{number}", body, rows)
                    for number in range(rounds)
                ]
                lines.append(
                    {
                        "door": kind,
                        "doors": count,
                        "rows": rows * count,
                        "cpu_us_per_row": round(min(cpu_us for cpu_us, _ in found), 3),
                        "rows_per_s": round(max(per_s for _, per_s in found)),
                    }
                )
        return lines


def _round(
    cluster: StreamLoadCluster, table: StoredTable, urls: list[str], label: str, body: bytes, rows: int
) -> tuple[float, float]:
    """Return the processor time of a row in microseconds, and rows per second by the clock."""
    options = SendOptions(format="csv", headers={"column_separator": ","}, timeout_s=600)

    def send(number: int) -> None:
        with StreamLoadClient([urls[number]], USER, PASSWORD) as client:
            answer = client.load(table.database, table.name, f"{label}-{number}", body, options)
        if (answer.status, answer.number_loaded_rows) != ("Success", rows):
            raise SystemExit(f"{label}: {answer.status}: {answer.message}")

    with ThreadPoolExecutor(len(urls)) as pool, ClusterWatch(cluster.processes.values()) as watch:
        began_s = time.perf_counter()
        list(pool.map(send, range(len(urls))))
        took_s = time.perf_counter() - began_s
    total = rows * len(urls)
    return watch.cpu_s / total * 1e6, total / took_s
