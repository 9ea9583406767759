"""Loads over HTTP until they are visible: a frontend and a storage node as processes, rows per second of a
core.

    python -m benchmarks.stream_load [--rows 1000000] [--rounds 2] [--body-gb 4] [--doors 1,2] [--json]

Ten columns, about 100 bytes a row in CSV; one load of all the rows at a time, into a duplicate and into an
aggregate table. `rows_per_s` is by the clock, from the first byte to the answer `Success`; `rows_per_core_s`
by the processor time that frontend and node have used. Before each load the node has merged what earlier
loads left; `merging_us_per_row` is the processor time which that took after the last load of each kind.
Beside it, in the same run and in turns with the loads, DuckDB copies the same bytes into a table on disk,
with one thread. With `--body-gb` one more CSV body of that size is sent, and the most memory of the two is
stated: what is their own, and beside it what a node has mapped of its files. With `--doors` nothing but
`benchmarks.load_doors` is measured, over so many doors each.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import duckdb
import psutil
from rtolap.model.stored.table import AggregateFunction, Buckets, StoredColumn, StoredTable
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import SendOptions

from benchmarks import bodies
from benchmarks.load_doors import measure_doors
from tests.support.stored.stream_load_cluster import PASSWORD, USER, StreamLoadCluster

_CHUNK_BYTES = 1 << 20
_SETTLE_S = 60.0
_LOOK_S = 0.5
_IDLE_SHARE = 0.08  # of a core, which idle processes stay below
_KEYS = ("day", "code", "place")
_FUNCTIONS: dict[str, AggregateFunction] = {
    "event_time": "MAX",
    "id": "MAX",
    "name": "REPLACE",
    "price": "SUM",
    "share": "MIN",
    "valid": "REPLACE",
    "note": "REPLACE_IF_NOT_NULL",
}


def tables() -> tuple[StoredTable, StoredTable]:
    """Return a duplicate table, and an aggregate one of 60 million possible keys."""
    columns = {column.name: column.definition for column in bodies.schema().columns}
    plain = StoredTable(
        database="bench", name="plain", columns=tuple(columns.values()), keys=("event_time", "id")
    )
    values = [
        StoredColumn(name, columns[name].type, aggregate=function) for name, function in _FUNCTIONS.items()
    ]
    merged = StoredTable(
        database="bench",
        name="merged",
        model="aggregate",
        columns=(*(columns[name] for name in _KEYS), *values),
        keys=_KEYS,
        buckets=Buckets(2),
    )
    return plain, merged


class Watch:
    """Processor time and memory of the processes, while it is entered."""

    def __init__(self, cluster: StreamLoadCluster) -> None:
        self._processes = [psutil.Process(process.pid()) for process in cluster.processes.values()]
        self._done = threading.Event()
        self.cpu_s = 0.0
        self.peak_bytes = [0] * len(self._processes)
        self.peak_mapped_bytes = [0] * len(self._processes)

    def __enter__(self) -> Watch:
        self._began_s = self._spent_s()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.cpu_s = self._spent_s() - self._began_s
        self._done.set()
        self._thread.join()

    def _spent_s(self) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in self._processes)

    def _sample(self) -> None:
        while not self._done.wait(0.1):
            for number, process in enumerate(self._processes):
                memory = process.memory_info()
                own_bytes = memory.rss - memory.shared  # pages of mapped files are the kernel's to take back
                self.peak_bytes[number] = max(self.peak_bytes[number], own_bytes)
                self.peak_mapped_bytes[number] = max(self.peak_mapped_bytes[number], memory.shared)


def load(
    cluster: StreamLoadCluster, table: str, label: str, body: Iterable[bytes], options: SendOptions
) -> tuple[float, Watch, int]:
    """Return (seconds, what was watched meanwhile, rows)"""
    with StreamLoadClient(cluster.urls, USER, PASSWORD) as client, Watch(cluster) as watch:
        began_s = time.perf_counter()
        answer = client.load("bench", table, label, body, options)
        took_s = time.perf_counter() - began_s
    if answer.status != "Success":
        raise SystemExit(f"{table}, {label}: {answer.status}: {answer.message}")
    return took_s, watch, answer.number_loaded_rows


def settled(cluster: StreamLoadCluster) -> float:
    """Wait until the nodes have merged what loads have left; return the processor seconds that it took."""
    processes = [psutil.Process(process.pid()) for process in cluster.processes.values()]

    def spent_s() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    began_s = last_s = spent_s()
    deadline_s = time.monotonic() + _SETTLE_S
    while time.monotonic() < deadline_s:
        time.sleep(_LOOK_S)
        now_s = spent_s()
        if now_s - last_s < _IDLE_SHARE * _LOOK_S:
            break
        last_s = now_s
    return last_s - began_s


def copied(folder: Path, kind: str, body: bytes) -> float:
    """Return the processor seconds that DuckDB needs to copy it into a table on disk, by one thread."""
    source = folder / f"body.{kind}"
    source.write_bytes(body)
    types = ", ".join(f"{name} {sql}" for name, (_, sql) in bodies._TYPES.items())
    options = {"csv": "FORMAT csv, HEADER false", "json": "FORMAT json", "parquet": "FORMAT parquet"}[kind]
    path = folder / f"copy-{kind}.duckdb"
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path), config={"threads": 1}) as connection:
        connection.execute(f"CREATE TABLE copied ({types})")
        began_s = time.process_time()
        connection.execute(f"COPY copied FROM '{source}' ({options})")
        connection.execute("CHECKPOINT")
        return time.process_time() - began_s


def _pieces(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), _CHUNK_BYTES):
        yield body[start : start + _CHUNK_BYTES]


def _repeated(body: bytes, size_bytes: int) -> Iterator[bytes]:
    for _ in range(max(1, size_bytes // len(body))):
        yield from _pieces(body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--body-gb", type=float, default=0.0)
    parser.add_argument("--doors", type=_numbers, help="numbers of doors, such as 1,2")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    made = bodies.rows(arguments.rows, seed=1)
    names = tuple(made.schema.names)
    if arguments.doors:
        with tempfile.TemporaryDirectory() as name:
            body = bodies.csv_bytes(made)
            lines = measure_doors(
                Path(name) / "cluster", arguments.doors, tables()[0], body, arguments.rows, arguments.rounds
            )
        for line in lines:
            _tell(line, as_json=arguments.json)
        if arguments.json:
            print(json.dumps(lines, indent=2))
        return
    results: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = {
            "csv": bodies.csv_bytes(made),
            "json": bodies.json_bytes(made, folder),
            "parquet": bodies.parquet_bytes(made),
        }
        with StreamLoadCluster(
            folder / "cluster", f"sqlite:///{folder / 'cluster' / 'ledger.db'}"
        ) as cluster:
            cluster.start(endpoints=1, nodes=1)
            for table in tables():
                cluster.tables.create(table)
            for kind, body in sources.items():
                options = SendOptions(
                    format=kind,  # type: ignore[arg-type]
                    columns=names,
                    headers={"column_separator": ","},
                )
                copy_s = float("inf")
                for table in tables():
                    best_s, best_cpu_s, merging_s = float("inf"), float("inf"), settled(cluster)
                    for number in range(arguments.rounds):
                        copy_s = min(copy_s, copied(folder, kind, body))
                        label = f"{kind}-{table.name}-{number}"
                        took_s, watch, rows = load(cluster, table.name, label, _pieces(body), options)
                        assert rows == arguments.rows
                        best_s, best_cpu_s = min(best_s, took_s), min(best_cpu_s, watch.cpu_s)
                        merging_s = settled(cluster)
                    results.append(
                        {
                            "format": kind,
                            "model": table.model,
                            "rows_per_s": round(arguments.rows / best_s),
                            "rows_per_core_s": round(arguments.rows / best_cpu_s),
                            "duckdb_rows_per_core_s": round(arguments.rows / copy_s),
                            "ratio": round(copy_s / best_cpu_s, 2),
                            "merging_us_per_row": round(merging_s / arguments.rows * 1e6, 2),
                        }
                    )
                    _tell(results[-1], as_json=arguments.json)
            if arguments.body_gb:
                size_bytes = round(arguments.body_gb * (1 << 30))
                options = SendOptions(
                    format="csv", columns=names, timeout_s=3600, headers={"column_separator": ","}
                )
                stream = _repeated(sources["csv"], size_bytes)
                took_s, watch, rows = load(cluster, "plain", "huge", stream, options)
                huge = {
                    "body_gb": arguments.body_gb,
                    "rows_per_s": round(rows / took_s),
                    "rows_per_core_s": round(rows / watch.cpu_s),
                    "endpoint_mb_max": watch.peak_bytes[0] >> 20,
                    "node_mb_max": watch.peak_bytes[1] >> 20,
                    "node_mapped_mb_max": watch.peak_mapped_bytes[1] >> 20,
                }
                results.append(huge)
                _tell(huge, as_json=arguments.json)
    if arguments.json:
        print(json.dumps(results, indent=2))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _tell(result: dict[str, object], *, as_json: bool) -> None:
    if not as_json:
        print("  ".join(f"{name} {value}" for name, value in result.items()), flush=True)


if __name__ == "__main__":
    main()
