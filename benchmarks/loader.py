"""A topic of JSON records into a duplicate table, end to end: loader, frontend and storage node.

    python -m benchmarks.loader [--records 1000000] [--processes 1,2,4] [--json]

Ten columns, about 100 bytes of CSV a row; the records are JSON of twice that. Beside it, in the same run:

consume   the bare loop over the same topic: the consumer that the loader uses, and nothing done with a record
decode    records → the table's columns in Arrow, one thread
loader    from the process's start until the last record is in the table; `cpu_s` of loader, frontend and node

With `--processes`, once for each number of processes that share the topic's partitions:

processes_N    rows_per_s from the start of all until the last record is in the table; cpu_us_per_row of the
               loader's processes together, without their start. Where cores are free, the first grows with
               N; the second says what a row costs however many processes there are. idle_cpu_ms_per_s: of all
               of them together while there is nothing to load: rounds, leases, polls
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.model.loader import LoaderBatch, LoaderProcesses
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.stack.process import ManagedProcess
from rtolap.stored.loader.records.decode import RecordDecoder
from rtolap.stored.loader.target import target_of
from rtolap.stored.metastore.database import Ledger

from benchmarks.servers import fill, kafka
from tests.support.loader.loader_world import DATABASE, Around, LoaderWorld
from tests.support.stored.stream_load_cluster import StreamLoadCluster

PARTITIONS = 4
SHARED_PARTITIONS = 8
IDLE_S = 10.0
COLUMNS = (
    ("id", "bigint"),
    ("at", "timestamp"),
    ("host", "string"),
    ("path", "string"),
    ("status", "int"),
    ("bytes", "bigint"),
    ("cost", "decimal(10,2)"),
    ("share", "double"),
    ("user", "string"),
    ("ok", "boolean"),
)


def record(number: int) -> bytes:
    return msgspec.json.encode(
        {
            "id": number,
            "at": f"2026-11-21 {number % 24:02}:{number % 60:02}:{number % 59:02}",
            "host": f"web-{number % 50:03}.example",
            "path": f"/shop/item/{number % 9973}",
            "status": 200 + number % 5,
            "bytes": number * 7 % 100_000,
            "cost": f"{number % 1000}.{number % 100:02}",
            "share": number % 997 / 997,
            "user": f"user{number % 10_007}",
            "ok": number % 3 == 0,
        }
    )


def measure_processes(records: int, numbers: list[int], folder: Path) -> dict[str, float]:
    """Return the figures of each number of processes, over topics of the same records."""
    figures: dict[str, float] = {}
    with servers(folder) as (bootstrap, around):
        for number in numbers:
            figures |= _measured_processes(records, number, bootstrap, around, folder / f"p{number}")
    return figures


def _measured_processes(
    records: int, number: int, bootstrap: str, around: Around, folder: Path
) -> dict[str, float]:
    name = f"shared{number}"
    world = LoaderWorld(
        name,
        "duplicate",
        around,
        folder,
        partitions=SHARED_PARTITIONS,
        batch=LoaderBatch(rows=200_000, interval_ms=2_000),
        table=_table(name),
        processes=LoaderProcesses(min=number, max=number, shares=SHARED_PARTITIONS),
    )
    try:
        for process in [world.process, *(world.add_process() for _ in range(number - 1))]:
            process.start()
        world.wait_until(
            lambda status: (
                len(status.processes) == number
                and all(process.alive and process.phase == "loading" for process in status.processes)
            )
        )
        before_s = sum(_cpu_s(process) for process in world.processes)
        block = min(records, 100_000)
        values = [record(at) for at in range(block)]
        began_s = time.perf_counter()
        filled = fill(
            bootstrap, name, values, partitions=SHARED_PARTITIONS, times=records // block, create=False
        )
        world.wait_loaded(timeout_s=600.0)
        taken_s = time.perf_counter() - began_s
        cpu_s = sum(_cpu_s(process) for process in world.processes) - before_s
        idle_before_s, idle_began_s = sum(map(_cpu_s, world.processes)), time.perf_counter()
        time.sleep(IDLE_S)
        idle_s = sum(map(_cpu_s, world.processes)) - idle_before_s
        idle_ms_per_s = 1e3 * idle_s / (time.perf_counter() - idle_began_s)
        rows = len(world.cluster.rows(TableName(DATABASE, name), ("id",)))
        assert rows == filled, f"{rows} rows in the table of {filled} records"
        return {
            f"processes_{number}_rows_per_s": filled / taken_s,
            f"processes_{number}_cpu_us_per_row": 1e6 * cpu_s / filled,
            f"processes_{number}_taken_s": taken_s,
            f"processes_{number}_idle_cpu_ms_per_s": idle_ms_per_s,
        }
    finally:
        world.close()


def _table(name: str) -> StoredTable:
    return StoredTable(
        database=DATABASE,
        name=name,
        keys=("id",),
        columns=tuple(StoredColumn(column, kind) for column, kind in COLUMNS),
    )


def consume_rate(bootstrap: str, topic: str, records: int) -> float:
    consumer = KafkaConsumer(bootstrap, topic, with_create_ms=True)
    consumer.assign(dict.fromkeys(range(PARTITIONS), 0))
    began_s, seen = time.perf_counter(), 0
    while seen < records:
        seen += len(consumer.poll(50_000, 1.0))
    taken_s = time.perf_counter() - began_s
    consumer.close()
    return records / taken_s


def measure(records: int, folder: Path) -> dict[str, float]:
    with servers(folder) as (bootstrap, around):
        return _measured(records, bootstrap, around, folder)


@contextmanager
def servers(folder: Path) -> Iterator[tuple[str, Around]]:
    """Start a broker, a front end and a storage node; yield the broker's address, and what loaders need."""
    with kafka() as bootstrap:
        address = f"sqlite:///{folder / 'ledger.db'}"
        cluster = StreamLoadCluster(folder / "cluster", address)
        with Ledger.open(address) as ledger, cluster:
            cluster.start(endpoints=1, nodes=1)
            server = _Address(bootstrap)
            yield bootstrap, Around(server, server, cluster, ledger, {"RTOLAP_LEDGER": address})  # type: ignore[arg-type]


class _Address:
    def __init__(self, address: str) -> None:
        self.address = address


def _measured(records: int, bootstrap: str, around: Around, folder: Path) -> dict[str, float]:
    world = LoaderWorld(
        "bench",
        "duplicate",
        around,
        folder,
        partitions=PARTITIONS,
        batch=LoaderBatch(rows=200_000, interval_ms=2_000),
        table=_table("bench"),
    )
    try:
        block = min(records, 100_000)
        values = [record(at) for at in range(block)]
        times = records // block
        filled = fill(bootstrap, "bench", values, partitions=PARTITIONS, times=times, create=False)
        figures = {"records": float(filled), "consume_rows_per_s": consume_rate(bootstrap, "bench", filled)}
        figures["decode_rows_per_s"] = _decode_rate(world, block)
        began_s = time.perf_counter()
        world.process.start()
        ready_s = time.perf_counter() - began_s
        world.wait_loaded(timeout_s=600.0)
        taken_s = time.perf_counter() - began_s
        figures["loader_rows_per_s"] = filled / taken_s
        figures["loader_rows_per_s_after_start"] = filled / (taken_s - ready_s)
        for name, process in {"loader": world.process, **around.cluster.processes}.items():
            figures[f"cpu_s_{name}"] = _cpu_s(process)
        rows = len(world.cluster.rows(TableName(DATABASE, "bench"), ("id",)))
        assert rows == filled, f"{rows} rows in the table of {filled} records"
        return figures
    finally:
        world.close()


def _decode_rate(world: LoaderWorld, records: int) -> float:
    values: list[bytes | None] = [record(at) for at in range(records)]
    target = target_of(world.loader, world.schema())
    decoder = RecordDecoder(target, record_bytes_max=1 << 20)
    decoder.decode(values[:2_000])
    began_s = time.perf_counter()
    decoder.decode(values)
    return records / (time.perf_counter() - began_s)


def _cpu_s(process: ManagedProcess) -> float:
    pid = process.pid()
    assert pid is not None, f"{process.name} is not running"
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument(
        "--processes", default="", help="numbers of processes that share the topic, such as 1,2,4"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rtolap-bench-") as folder:
        if arguments.processes:
            numbers = [int(number) for number in arguments.processes.split(",")]
            figures = measure_processes(arguments.records, numbers, Path(folder))
        else:
            figures = measure(arguments.records, Path(folder))
    if arguments.json:
        json.dump(figures, sys.stdout)
        return
    for name, value in figures.items():
        print(f"{name:32} {value:14,.1f}")


if __name__ == "__main__":
    main()
