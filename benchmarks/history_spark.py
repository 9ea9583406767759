"""History on Spark beside history in this process, and a warm Spark Connect session beside a driver of ours.

    python -m benchmarks.history_spark [--rows 250000] [--files 8] [--rounds 7] [--json]

One history of `files` segments with `rows` rows of the base cuboid each. Three ways read it, one after the
other, each warm: `local`, this process with no kept results and no files in memory; `connect`, the service
that `rtolap spark serve` runs; `classic`, a driver in this process, which a long-lived query service would
have to hold (pyspark over Py4J). Statements: `nothing` (`SELECT 1`, the cost of a session alone), one
segment, all segments. Figures of each: the first call, the median and the largest of the rounds by the
clock, and processor time of this process and of the JVM for one call.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as in its own pages
from rtolap.aggregates.spark_sql import merged, quoted, spark_type
from rtolap.base.clock import SystemClock
from rtolap.columnar.schema import select_partials
from rtolap.metadata.records import SegmentRecord
from rtolap.model.predicate import Compare
from rtolap.object_store.store import ObjectStore, open_store
from rtolap.query.cancel import Cancellation, Timeouts
from rtolap.query.cubes.history import EmbeddedHistory, MemoryBounds
from rtolap.query.engine_choice import EngineRules
from rtolap.query.memory_budget import MemoryBudget
from rtolap.query.plan import CubeRead, ReadStats, TimeRange
from rtolap.query.spark.scans import SparkScans

from tests.support.query.on_spark.scanned_history import SCHEMA, make_history
from tests.support.query.on_spark.spark_connect import spark_server

WARM_CALLS = 4
RESULT_BYTES_MAX = 1 << 28
NOTHING_KEPT = MemoryBounds(file_bytes=0, column_bytes=0, result_bytes=0)
PARTIALS = ("__rows", "bytes__sum", "bytes__max")


class Figures(NamedTuple):
    """Milliseconds of one call: by the clock, and of processors."""

    first: float
    median: float
    largest: float
    own_cpu: float
    jvm_cpu: float


def the_read(number: int) -> CubeRead:
    """A read that none was before, so that nothing of it is known."""
    condition = Compare("host", "lt", 500 + number)
    return CubeRead(SCHEMA, "__relation_scanned", ("kind",), PARTIALS, condition, TimeRange())


def measured(call: Callable[[int], object], rounds: int, jvm: psutil.Process | None) -> Figures:
    def cpu_ms() -> tuple[float, float]:
        own, theirs = psutil.Process().cpu_times(), None if jvm is None else jvm.cpu_times()
        return (own.user + own.system) * 1000, 0.0 if theirs is None else (theirs.user + theirs.system) * 1000

    def timed_ms(number: int) -> float:
        began_s = time.perf_counter()
        call(number)
        return (time.perf_counter() - began_s) * 1000

    first = timed_ms(0)
    for number in range(WARM_CALLS):
        call(1 + number)
    before = cpu_ms()
    times = [timed_ms(1 + WARM_CALLS + number) for number in range(rounds)]
    own, theirs = ((after - then) / rounds for after, then in zip(cpu_ms(), before, strict=True))
    return Figures(*(round(each, 1) for each in (first, statistics.median(times), max(times), own, theirs)))


Ways = dict[str, Callable[[int], object]]


@contextmanager
def by_history(
    store: ObjectStore, records: list[SegmentRecord], scans: SparkScans | None
) -> Iterator[dict[str, Callable[[int], object]]]:
    wish = "auto" if scans is None else "spark"
    rules = EngineRules(has_spark=scans is not None)
    with (
        closing(Timeouts(SystemClock())) as timeouts,
        closing(EmbeddedHistory(store, None, NOTHING_KEPT, scans, rules)) as history,
    ):

        def read(segments: list[SegmentRecord], number: int) -> object:
            ending = Cancellation(timeouts, 600_000, "", wish)  # type: ignore[arg-type]
            account = MemoryBudget().account("")
            return history.read(the_read(number), segments, ReadStats("scanned"), ending, account)

        yield {
            "one segment": lambda number: read(records[:1], number),
            "all segments": lambda number: read(records, number),
        }


@contextmanager
def by_driver(store: ObjectStore, records: list[SegmentRecord]) -> Iterator[tuple[Ways, psutil.Process]]:
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "600m")
    settings = {"ui.enabled": "false", "sql.shuffle.partitions": "4", "driver.host": "127.0.0.1"}
    for name, value in {**settings, "driver.bindAddress": "127.0.0.1", "sql.ansi.enabled": "true"}.items():
        builder = builder.config(f"spark.{name}", value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    names = [("kind", SCHEMA.dimension_type("kind")), ("host", SCHEMA.dimension_type("host"))]
    partials = select_partials(SCHEMA, PARTIALS)
    columns = ", ".join(
        f"{quoted(name)} {spark_type(kind)}" for name, kind in (*names, *((p.name, p.type) for p in partials))
    )

    def read(segments: list[SegmentRecord], number: int) -> object:
        uris = [store.spark_uri(f"{record.location}/base/part-0.parquet") for record in segments]
        rows = spark.read.schema(columns).parquet(*uris).where(F.col("host") < 500 + number)
        return rows.groupBy("kind").agg(*(F.expr(merged(p)).alias(p.name) for p in partials)).toArrow()

    java = [each for each in psutil.Process().children(recursive=True) if each.name() == "java"]
    try:
        yield (
            {
                "nothing": lambda number: spark.sql("SELECT 1").toArrow(),
                "one segment": lambda number: read(records[:1], number),
                "all segments": lambda number: read(records, number),
            },
            java[0],
        )
    finally:
        spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=250_000)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found: dict[str, dict[str, Figures]] = {}
    with tempfile.TemporaryDirectory(prefix="rtolap-bench-") as name:
        folder = Path(name)
        store = open_store((folder / "store").as_uri())
        store.claim()
        records = make_history(store, arguments.files, arguments.rows)

        def measure(way: str, calls: Ways, jvm: psutil.Process | None) -> None:
            for statement, call in calls.items():
                figures = measured(call, arguments.rounds, jvm)
                found.setdefault(way, {})[statement] = figures
                if not arguments.json:
                    print(f"{way:8} {statement:13} {figures}", flush=True)

        with by_history(store, records, None) as calls:
            measure("local", calls, None)
        with spark_server(folder) as server:
            assert server.process is not None
            jvm = psutil.Process(server.process.pid)
            scans = SparkScans(store, server.service, RESULT_BYTES_MAX)
            connection = scans.connections.take()
            bare = {"nothing": lambda _: connection.session.sql("SELECT 1").toArrow()}
            with by_history(store, records, scans) as calls:
                measure("connect", {**bare, **calls}, jvm)
        with by_driver(store, records) as (calls, jvm):
            measure("classic", calls, jvm)
    if arguments.json:
        print(json.dumps({way: {k: v._asdict() for k, v in each.items()} for way, each in found.items()}))


if __name__ == "__main__":
    main()
