"""Builds of history: many small segments, and a large one, beside plain Spark's `cube()` and DuckDB.

    python -m benchmarks.build [--segments 128] [--segment-rows 1000] [--rows 10000000] [--rounds 3]
                               [--peer CHECKOUT] [--only small|large] [--json]

A cube of three dimensions has eight cuboids. Each contender is a process of its own, timed from its start to
its end, in turns: the build as an agent submits it (two cores, `--driver-memory`), the same of another
checkout where `--peer` names one, plain Spark (`cube()` over the same staged rows, written once) and DuckDB
(grouping sets, two threads, a file per cuboid and segment). `s` is by the clock, `cpu_s` processor time of
the process and its children, memory their largest resident size together. Every contender's cuboids are
counted, summed and hashed, row by row, and have to agree. `ratio` and `ratio_to_duckdb`: plain Spark's and
DuckDB's time over the build's, of the large segment; of the small ones where that is not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import msgspec
import psutil
import pyarrow as pa
from rtolap.columnar.schema import physical_schema
from rtolap.cubes.format.staged import write_staged_part
from rtolap.model.build_spec import BuildPart, BuildSpec
from rtolap.model.cube import AggregationGroup, Cube, Measure, Schema
from rtolap.model.offsets import PartRange
from rtolap.model.segment import SegmentRange
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.object_store.store import ObjectStore, open_store
from rtolap.stack.java import spark_submit_options

_PROJECT = Path(__file__).resolve().parents[1]
_HOUR_MS = 3_600_000
_BEGIN_MS = 1_356_998_400_000
_DIMENSIONS = ("hour_start", "shop", "item")
_SAMPLE_S = 0.1
_TABLE = Table(
    name="sales",
    topic="sales",
    time=TimeColumn("at", "epoch_ms"),
    columns=(
        Column("at", "bigint"),
        Column("shop", "string"),
        Column("item", "int"),
        Column("units", "bigint"),
        Column("price", "decimal(12,2)"),
        Column("weight", "double"),
    ),
)
_CUBE = Cube(
    name="sales_cube",
    table="sales",
    dimensions=_DIMENSIONS[1:],
    time_dimensions=("hour",),
    measures=(
        Measure("count"),
        Measure("sum", "units"),
        Measure("sum", "price"),
        Measure("max", "price"),
        Measure("sum", "weight"),
    ),
    aggregation_groups=(AggregationGroup(include=_DIMENSIONS),),
)
_SCHEMA = Schema(_TABLE, _CUBE)
_MERGED = {partial.name: partial.accumulator.arrow_kernel for partial in _SCHEMA.partials}


class Case(NamedTuple):
    """Staged segments, and how the build is to be submitted."""

    store: ObjectStore
    folder: Path
    specs: list[BuildSpec]
    environment: Mapping[str, str]
    driver_memory: str

    @property
    def files(self) -> list[str]:
        return [
            self.store.absolute(file.path)
            for file in self.store.list("staged")
            if file.path.endswith(".parquet")
        ]


class Run(NamedTuple):
    seconds: float
    cpu_seconds: float
    memory_mb: float


def staged_rows(connection: duckdb.DuckDBPyConnection, seed: int, rows: int, begin_ms: int) -> pa.Table:
    """Return rows of the base cuboid as a few replica sets upload them: some share their dimensions."""
    table: pa.Table = connection.sql(
        f"""SELECT make_timestamp({begin_ms * 1000} + drawn(i, 0, 24) * {_HOUR_MS * 1000}) AS hour_start,
            'shop-' || drawn(i, 1, 500) AS shop,
            drawn(i, 2, greatest(200, {rows} // 25000))::INT AS item,
            1::BIGINT AS __rows,
            drawn(i, 3, 100)::DECIMAL(38,0) AS units__sum,
            (drawn(i, 4, 100000)::DECIMAL(38,2) / 100)::DECIMAL(38,2) AS price__sum,
            (drawn(i, 4, 100000)::DECIMAL(38,2) / 100)::DECIMAL(12,2) AS price__max,
            drawn(i, 5, 1000)::DOUBLE / 8 AS weight__sum
        FROM range({seed} * {rows}, ({seed} + 1) * {rows}) AS made(i)"""
    ).to_arrow_table()
    expected = physical_schema(_SCHEMA, plain=True)
    return table.select(expected.names).cast(expected)


def staged_case(folder: Path, segments: int, rows: int, *, lean: bool, driver_memory: str) -> Case:
    store = open_store((folder / "store").as_uri())
    store.claim()
    specs = []
    connection = duckdb.connect()
    connection.execute("CREATE MACRO drawn(i, k, n) AS (hash(i * 8 + k) % n)::BIGINT")
    for number in range(segments):
        begin_ms = _BEGIN_MS + number * 24 * _HOUR_MS
        segment = SegmentRange(begin_ms, begin_ms + 24 * _HOUR_MS)
        ranges = (PartRange(0, 0, rows),)
        part = write_staged_part(
            store,
            schema=_SCHEMA,
            cube=_CUBE.name,
            segment=segment.name,
            version=1,
            replica_set="rs1",
            ranges=ranges,
            tables=[staged_rows(connection, number, rows, begin_ms)],
            events=rows,
            unique="u",
        )
        specs.append(
            BuildSpec(
                build_id=f"b{number}",
                cube=_CUBE.name,
                segment=segment.name,
                start_ms=segment.start_ms,
                end_ms=segment.end_ms,
                version=1,
                table_definition=_TABLE,
                cube_definition=_CUBE,
                parts=(BuildPart("rs1", part.path, ranges, part.rows, part.events),),
                first_offsets={0: 0},
                covered={0: rows},
                object_store=store.uri(""),
                location=f"history/{_CUBE.name}/{segment.name}/v1-b{number}",
            )
        )
    options = {"SPARK_SUBMIT_OPTS": spark_submit_options()} if lean else {}
    environment = {
        **os.environ,
        **options,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return Case(store, folder, specs, environment, driver_memory)


def measured(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Run:
    began_s, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    peak_bytes, seen_cpu_s = 0, dict[psutil.Process, float]()
    log = folder / "contender.log"
    with log.open("wb") as output:
        process = psutil.Popen(command, env=dict(environment), cwd=folder, stdout=output, stderr=output)
        while process.poll() is None:
            peak_bytes = max(peak_bytes, _looked_at(process, seen_cpu_s))
            try:
                process.wait(_SAMPLE_S)
            except psutil.TimeoutExpired:
                continue
    if process.returncode:
        raise RuntimeError(f"{command[0]} ended with {process.returncode}: {log.read_text()[-3000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    waited_cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    # Nobody waits for processes that end after their parents, as Spark's Python does: the sum has them.
    cpu_s = max(waited_cpu_s, sum(seen_cpu_s.values()))
    return Run(time.perf_counter() - began_s, cpu_s, peak_bytes / (1 << 20))


def _looked_at(process: psutil.Process, cpu_s: dict[psutil.Process, float]) -> int:
    """Note the processor time of each process of the family. Returns their resident bytes together."""
    total = 0
    try:
        members = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for member in members:
        try:
            times = member.cpu_times()
            cpu_s[member] = times.user + times.system
            total += member.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def _submit(case: Case, target: Path, *arguments: str) -> list[str]:
    submit = Path(sys.executable).with_name("spark-submit")
    options = ("--master", "local[2]", "--driver-memory", case.driver_memory)
    return [str(submit), *options, str(target), *arguments]


def build_of(checkout: Path) -> Callable[[Case], Run]:
    def run(case: Case) -> Run:
        shutil.rmtree(case.folder / "store" / "history", ignore_errors=True)
        specs = case.folder / "specs.json"
        specs.write_bytes(msgspec.json.encode(case.specs))
        environment = {
            **case.environment,
            "PYTHONPATH": str(checkout / "plugins"),
            "SPARK_SUBMIT_OPTS": spark_submit_options(),  # as the stack's agent has it
        }
        command = _submit(case, checkout / "spark_jobs" / "build_segment.py", str(specs))
        return measured(command, environment, case.folder)

    return run


def plain_spark(case: Case) -> Run:
    shutil.rmtree(case.folder / "plain", ignore_errors=True)
    chosen = ", ".join(f"{op}({name}) AS {name}" for name, op in _MERGED.items())
    source = f"""
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.getOrCreate()
rows = spark.read.parquet(*{case.files!r})
segment = F.element_at(F.split(F.col("_metadata.file_path"), "/"), -4)
rows.withColumn("segment", segment).createOrReplaceTempView("staged")
frame = spark.sql(\"\"\"SELECT grouping_id() AS g, segment, {", ".join(_DIMENSIONS)}, {chosen}
    FROM staged GROUP BY segment, CUBE ({", ".join(_DIMENSIONS)})\"\"\")
frame.write.parquet({str(case.folder / "plain")!r}, compression="zstd")
"""
    target = case.folder / "plain_cube.py"
    target.write_text(source)
    return measured(_submit(case, target), case.environment, case.folder)


def plain_duckdb(case: Case) -> Run:
    shutil.rmtree(case.folder / "duckdb", ignore_errors=True)
    chosen = ", ".join(f"{op}({name}) AS {name}" for name, op in _MERGED.items())
    source = f"""
import duckdb
connection = duckdb.connect(config={{"threads": 2}})
connection.execute(\"\"\"COPY (
    SELECT GROUPING({", ".join(_DIMENSIONS)}) AS g, segment, {", ".join(_DIMENSIONS)}, {chosen}
    FROM (SELECT *, split_part(filename, '/', -4) AS segment
          FROM read_parquet({case.files!r}, filename = true))
    GROUP BY segment, CUBE ({", ".join(_DIMENSIONS)})
) TO '{case.folder / "duckdb"}' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (g, segment))\"\"\")
"""
    return measured([sys.executable, "-c", source], case.environment, case.folder)


def _sums(files: str) -> tuple[Any, ...]:
    """Return sums over all cuboids, one of them of hashes of whole rows. The weights are eighths, so their
    sums are exact."""
    found = duckdb.connect().execute(
        f"""SELECT count(*), sum(__rows)::BIGINT, sum(units__sum), sum(price__sum), max(price__max),
            sum(hash(hour_start::TIMESTAMP, shop, item, __rows::BIGINT, units__sum::DECIMAL(38,0),
                price__sum::DECIMAL(38,2), price__max::DECIMAL(12,2), weight__sum)::HUGEINT)
        FROM read_parquet('{files}', union_by_name = true)"""
    )
    return tuple(found.fetchall()[0])


def run_case(case: Case, contenders: Mapping[str, Callable[[Case], Run]], rounds: int) -> dict[str, Any]:
    runs: dict[str, list[Run]] = {name: [] for name in contenders}
    sums: dict[str, tuple[Any, ...]] = {}
    results = {"plain_spark": "plain/*.parquet", "duckdb": "duckdb/**/*.parquet"}
    for number in range(rounds):
        for name in sorted(contenders, reverse=number % 2 == 1):  # who is first changes
            runs[name].append(contenders[name](case))
            pattern = results.get(name, "store/history/**/*.parquet")
            sums[name] = _sums(str(case.folder / pattern))
    if len(set(sums.values())) != 1:
        raise RuntimeError(f"the contenders disagree: {sums}")
    rows = sum(spec.parts[0].rows for spec in case.specs)
    figures: dict[str, Any] = {"segments": len(case.specs), "rows": rows, "cuboid_rows": sums["build"][0]}
    for name, of_contender in runs.items():
        seconds = statistics.median(run.seconds for run in of_contender)
        figures[name] = {
            "s": round(seconds, 2),
            "s_all": [round(run.seconds, 2) for run in of_contender],
            "cpu_s": round(statistics.median(run.cpu_seconds for run in of_contender), 2),
            "rows_per_s": round(rows / seconds),
            "memory_mb": round(statistics.median(run.memory_mb for run in of_contender)),
        }
    for name in runs:
        for unit in ("s", "cpu_s", "memory_mb"):
            ratio = figures[name][unit] / figures["build"][unit]
            figures.setdefault(f"{name}_over_build", {})[unit] = round(ratio, 2)
    return figures


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    contenders: dict[str, Callable[[Case], Run]] = {"build": build_of(_PROJECT)}
    if options.peer is not None:
        contenders["peer"] = build_of(options.peer.resolve())
    contenders |= {"plain_spark": plain_spark, "duckdb": plain_duckdb}
    figures: dict[str, Any] = {"cores": os.cpu_count()}
    if options.only != "large":
        case = staged_case(
            folder / "small", options.segments, options.segment_rows, lean=True, driver_memory="1g"
        )
        figures["small"] = run_case(case, contenders, options.rounds)
    if options.only != "small":
        case = staged_case(folder / "large", 1, options.rows, lean=False, driver_memory=options.driver_memory)
        figures["large"] = run_case(case, contenders, options.rounds)
    chosen = figures["small" if options.only == "small" else "large"]
    figures["ratio"] = chosen["plain_spark_over_build"]["s"]
    figures["ratio_to_duckdb"] = chosen["duckdb_over_build"]["s"]
    figures["load"] = os.getloadavg()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--segments", type=int, default=128)
    parser.add_argument("--segment-rows", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--driver-memory", default="2g")
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--only", choices=("small", "large"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="rtolap-build-"))
    try:
        figures = measure(options, folder)
    finally:
        shutil.rmtree(folder)
    if options.json:
        print(json.dumps(figures))
        return
    for name, figure in figures.items():
        print(f"{name:6} {figure}")


if __name__ == "__main__":
    main()
