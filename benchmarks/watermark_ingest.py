"""The cost of grouping by host: a receiver's CPU time from Kafka to a queryable roll-up, with and without it.

    python -m benchmarks.watermark_ingest [--events 1000000] [--hosts 1000] [--rounds 3] [--json]

The same records, 220 bytes, 4 partitions, of so many hosts that all log to every partition, are read by three
workers in turn, each a process on one pinned core: `plain`, a cube whose table has no column for the host;
`column`, the same with the column, which nothing uses; `hosts`, a cube that closes by an application, with
the column as its table's `host_column`. Ratios are of medians of the processor time a round.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

import msgspec
import numpy as np
from rtolap.model.application import CubeWatermark
from rtolap.model.cube import Schema
from rtolap.model.table import Column

from benchmarks import events
from benchmarks.command_line import new_parser
from benchmarks.ingest import PARTITIONS, TOPIC, ingested
from benchmarks.servers import fill, kafka

WORKERS = ("plain", "column", "hosts")
BASE_EVENTS = 250_000


def schema(worker: str) -> Schema:
    plain = events.schema(TOPIC)
    if worker == "plain":
        return plain
    columns = (*plain.table.columns, Column("host", "string"))
    if worker == "column":
        return Schema(msgspec.structs.replace(plain.table, columns=columns), plain.cube)
    return Schema(
        msgspec.structs.replace(plain.table, columns=columns, host_column="host"),
        msgspec.structs.replace(plain.cube, watermark=CubeWatermark("logs", "web", "cubes")),
    )


def with_hosts(values: Sequence[bytes], hosts: int, seed: int) -> list[bytes]:
    of = np.random.default_rng(seed).integers(0, hosts, len(values)).tolist()
    return [b'%s,"host":"web-%05d"}' % (value[:-1], host) for value, host in zip(values, of, strict=True)]


def work(worker: str, bootstrap: str, total: int) -> None:
    """Run in a process of its own. Prints its processor time in seconds."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    started_s = time.process_time()
    rows = ingested(bootstrap, total, schema(worker))
    if rows != total:
        raise SystemExit(f"{worker} counted {rows} of {total} events")
    print(json.dumps(time.process_time() - started_s))


def run(worker: str, bootstrap: str, total: int) -> float:
    command = [sys.executable, "-m", "benchmarks.watermark_ingest", "--worker", worker, bootstrap]
    done = subprocess.run(
        [*command, "--events", str(total)], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return float(done.splitlines()[-1])


def main() -> None:
    parser = new_parser(__doc__, worker=("NAME", "BOOTSTRAP"))
    parser.add_argument("--events", type=int, default=4 * BASE_EVENTS)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.worker:
        worker, bootstrap = arguments.worker
        work(worker, bootstrap, arguments.events)
        return
    taken: dict[str, list[float]] = {worker: [] for worker in WORKERS}
    with kafka() as bootstrap:
        values = with_hosts(events.values(BASE_EVENTS, seed=1), arguments.hosts, seed=2)
        times = max(1, arguments.events // BASE_EVENTS)
        total = fill(bootstrap, TOPIC, values, partitions=PARTITIONS, times=times)
        for _ in range(arguments.rounds):
            for worker in WORKERS:
                taken[worker].append(run(worker, bootstrap, total))
    cpu_ns = {worker: statistics.median(figures) / total * 1e9 for worker, figures in taken.items()}
    print(f"{total} events of {arguments.hosts} hosts, one core, {arguments.rounds} rounds")
    for worker, one_ns in cpu_ns.items():
        print(f"  {worker:8} {one_ns:8.0f} ns of CPU per event   {one_ns / cpu_ns['plain']:5.2f}")
    if arguments.json:
        print(json.dumps({"benchmark": "watermark_ingest", "hosts": arguments.hosts, "ns_per_event": cpu_ns}))


if __name__ == "__main__":
    main()
