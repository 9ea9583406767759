"""The statements of `benchmarks.history` over a star schema, answered by this process and by Spark, in turns.

    python -m benchmarks.history --engine spark [--scale 1] [--rounds 5] [--master MASTER] [--json]

Three ways read the same READY files. `local`: this process, columns in its memory. `files`: this process,
which keeps nothing and so decodes files for each statement. `spark`: the service that `rtolap spark serve`
runs, whose executors are processes of their own (two of them, unless MASTER says otherwise). None of them
keeps results. All are asked once first, and their answers are compared with DuckDB's over the raw rows.

Figures are medians of the rounds, for each statement and way: seconds by the clock (`s`), and of processors
(`cpu_s`), of this process with its workers and of Spark with its executors together.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from rtolap.query.cubes.history import MemoryBounds
from rtolap.query.spark.scans import SparkScans
from rtolap.query.statement_service import QueryService

from benchmarks.history import NO_RESULTS, check, star_schema
from benchmarks.star_schema import BASE_STATEMENTS, STATEMENTS
from tests.support.query.on_spark.spark_connect import spark_server

NOTHING_KEPT = MemoryBounds(file_bytes=0, column_bytes=0, result_bytes=0)
RESULT_BYTES_MAX = 1 << 28
DRIVER_MB = 800


class Took(NamedTuple):
    """Seconds of a statement: by the clock, and of processors."""

    s: float
    cpu_s: float


def run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the figures of all statements, and their sums."""
    statements = STATEMENTS | BASE_STATEMENTS
    (folder / "spark").mkdir()
    with (
        star_schema(arguments.scale, folder) as star,
        spark_server(folder / "spark", arguments.master, DRIVER_MB) as server,
        star.service(folder, NO_RESULTS) as local,
        star.service(folder, NOTHING_KEPT) as files,
        star.service(folder, NOTHING_KEPT, SparkScans(star.store, server.service, RESULT_BYTES_MAX)) as spark,
    ):
        ways = {"local": local, "files": files, "spark": spark}
        for service in ways.values():
            check(service, star.raw, statements)
        by_engine = spark.execute(statements["1.1"]).stats[0].engine
        assert by_engine == "spark", by_engine
        times: dict[str, dict[str, list[Took]]] = {name: {way: [] for way in ways} for name in statements}
        for _ in range(arguments.rounds):
            for name, sql in statements.items():
                for way, service in ways.items():
                    times[name][way].append(_took(service, sql))
        figures = {**star.figures, "master": arguments.master, "rounds": arguments.rounds}
    figures["statements"] = {
        name: {way: _median(each)._asdict() for way, each in by_way.items()} for name, by_way in times.items()
    }
    figures["sums"] = {
        way: {
            unit: round(sum(figures["statements"][name][way][unit] for name in statements), 2)
            for unit in Took._fields
        }
        for way in ways
    }
    return figures


def table(figures: dict[str, Any]) -> str:
    """Return the figures as a table: a line a statement, and one of the sums."""
    ways = list(figures["sums"])
    lines = ["| | " + " | ".join(f"{way} s; cpu s" for way in ways) + " |", "|---" * (len(ways) + 1) + "|"]
    for name, by_way in (*figures["statements"].items(), ("all", figures["sums"])):
        cells = " | ".join(f"{by_way[way]['s']:.2f}; {by_way[way]['cpu_s']:.2f}" for way in ways)
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines)


def _took(service: QueryService, sql: str) -> Took:
    began_s, spent_s = time.perf_counter(), _cpu_s()
    service.execute(sql).table()
    return Took(time.perf_counter() - began_s, _cpu_s() - spent_s)


def _cpu_s() -> float:
    """Return the processor time of this process and of all below it: workers, Spark and its executors."""
    total = time.process_time()
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:  # it has ended since it was listed
            continue
        total += times.user + times.system
    return total


def _median(times: list[Took]) -> Took:
    return Took(*(round(statistics.median(each), 3) for each in zip(*times, strict=True)))
