"""The cost of merging groups for the query service, with and without a Spark Connect service.

    python -m benchmarks.merged_groups [--rows 250000] [--files 24] [--rounds 3] [--json]

One history of `files` segments with `rows` rows of the base cuboid each, grouped to 100 groups and to
100 000. Each way has a process of its own that reads it as a query service does, with no results and no files
kept: `local` merges the partials itself, `spark` has the service of `rtolap spark serve` do it. Figures of a
warm call are medians of the rounds: seconds by the clock, processor seconds of the reading process and of the
JVM. The peak is that of the reading process over all calls, beyond what it had before the first. The rows of
each answer are counted.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from rtolap.base.clock import SystemClock
from rtolap.metadata.records import SegmentRecord
from rtolap.object_store.store import open_store
from rtolap.query.cancel import Cancellation, Timeouts
from rtolap.query.cubes.history import EmbeddedHistory, MemoryBounds
from rtolap.query.engine_choice import EngineRules
from rtolap.query.memory_budget import MemoryBudget
from rtolap.query.plan import CubeRead, ReadStats, TimeRange
from rtolap.query.spark.scans import SparkScans
from rtolap.query.spark.service import SparkService

from tests.support.query.on_spark.scanned_history import SCHEMA, make_history
from tests.support.query.on_spark.spark_connect import spark_server

RESULT_BYTES_MAX = 1 << 28
NOTHING_KEPT = MemoryBounds(file_bytes=0, column_bytes=0, result_bytes=0)
PARTIALS = ("__rows", "bytes__sum", "bytes__max")
READS = {"100 groups": ("kind",), "100 000 groups": ("kind", "host")}
WARM_CALLS = 2
MEMORY_MB = 1_200  # of the JVM


class Job(msgspec.Struct, frozen=True):
    """The work of a reading process. `service`: of Spark; empty for none. Its token comes by the environment.
    `rows`: of all files."""

    store: str
    records: tuple[SegmentRecord, ...]
    dimensions: tuple[str, ...]
    rounds: int
    rows: int
    service: str = ""
    jvm: int = 0


class Figures(NamedTuple):
    """The figures of one call, but for the peak, which is that of all."""

    wall_s: float
    own_cpu_s: float
    jvm_cpu_s: float
    peak_mib: float
    groups: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=250_000)
    parser.add_argument("--files", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        print(json.dumps(_measured(msgspec.json.decode(Path(arguments.job).read_bytes(), type=Job))))
        return
    found: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="rtolap-bench-") as name:
        folder = Path(name)
        store = open_store((folder / "store").as_uri())
        store.claim()
        records = tuple(make_history(store, arguments.files, arguments.rows))
        uri = (folder / "store").as_uri()
        with spark_server(folder, memory_mb=MEMORY_MB) as server:
            assert server.process is not None
            for what, dimensions in READS.items():
                local = Job(uri, records, dimensions, arguments.rounds, arguments.files * arguments.rows)
                on_spark = msgspec.structs.replace(local, service=server.service.url, jvm=server.process.pid)
                for way, job in (("local", local), ("spark", on_spark)):
                    figures = _run(folder, job, server.service.token)
                    found.setdefault(what, {})[way] = figures._asdict()
                    if not arguments.json:
                        print(f"{what:15} {way:6} {figures}", flush=True)
    if arguments.json:
        print(json.dumps(found))


def _run(folder: Path, job: Job, token: str) -> Figures:
    file = folder / "job.json"
    file.write_bytes(msgspec.json.encode(job))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.merged_groups", "--job", str(file)],
        env={**os.environ, "BENCHMARK_TOKEN": token},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return Figures(*json.loads(done.stdout))


def _measured(job: Job) -> Figures:
    """Return the medians of the rounds. Each call's filter is one that none had before."""
    store = open_store(job.store)
    scans = None
    if job.service:
        service = SparkService(job.service, os.environ["BENCHMARK_TOKEN"])
        scans = SparkScans(store, service, RESULT_BYTES_MAX)
    rules = EngineRules(has_spark=scans is not None)
    jvm = psutil.Process(job.jvm) if job.jvm else None
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before_mib = _memory_mib("VmRSS")
    with (
        closing(Timeouts(SystemClock())) as timeouts,
        closing(EmbeddedHistory(store, None, NOTHING_KEPT, scans, rules)) as history,
    ):

        def read() -> pa.Table:
            ending = Cancellation(timeouts, 600_000, "", "auto" if scans is None else "spark")
            account = MemoryBudget().account("")
            of = CubeRead(SCHEMA, "__relation_scanned", job.dimensions, PARTIALS, None, TimeRange())
            table = history.read(of, list(job.records), ReadStats("scanned"), ending, account)
            assert isinstance(table, pa.Table)
            assert pc.sum(table["__rows"]).as_py() == job.rows
            return table

        for _ in range(WARM_CALLS):
            read()
        figures = _medians([_timed(read, jvm) for _ in range(job.rounds)])
    return figures._replace(peak_mib=round(_memory_mib("VmHWM") - before_mib, 1))


def _timed(read: Callable[[], pa.Table], jvm: psutil.Process | None) -> Figures:
    own_s, theirs_s, began_s = _own_cpu_s(), _cpu_s(jvm), time.perf_counter()
    table = read()
    return Figures(
        round(time.perf_counter() - began_s, 3),
        round(_own_cpu_s() - own_s, 3),
        round(_cpu_s(jvm) - theirs_s, 3),
        0.0,
        table.num_rows,
    )


def _medians(rounds: list[Figures]) -> Figures:
    return Figures(*(statistics.median(column) for column in zip(*rounds, strict=True)))


def _own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _cpu_s(jvm: psutil.Process | None) -> float:
    if jvm is None:
        return 0.0
    times = jvm.cpu_times()
    return times.user + times.system


def _memory_mib(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{field}:")]
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
