"""A group-by over the roll-up rows that a receiver holds: processor time of `answer`, beside other engines.

    python -m benchmarks.first_answers [--tables 8] [--table-rows 200000] [--rounds 7] [--json]

The rows stand in fragments of one segment each, of four dimensions and the hour, with the measures of other
benchmarks. The statement counts and sums by ten values. It is asked for the first time with and without small
cuboids of the declared groups beside the fragments, and again as dashboards do; DuckDB on one thread has the
same rows in a table of its own, pyarrow groups the very same Arrow columns. Rounds are in turns, each way's
figure is the median, and every answer is held against the first. `ratio` is DuckDB's time over that of the
first statement with cuboids.

`--filtered`: only one device of four. What making the cuboids takes is shown once, for all tables.
`--ingest`: instead, the processor time of an event from Kafka in memory to merged fragments, with and without
cuboids beside them, by turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rtolap.base.clock import SystemClock
from rtolap.columnar.schema import physical_schema
from rtolap.cubes.format.fragment import SUFFIX, open_fragment, write_fragment
from rtolap.cubes.receiver.answers.query_service import answer
from rtolap.cubes.receiver.answers.result_cache import ResultCache
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.core.partition_progress import ConsumerProgress
from rtolap.cubes.receiver.local.fragments import cuboid_jobs, keep_cuboids, merge, merge_job
from rtolap.cubes.receiver.local.tables import LocalSegment, LocalState, LocalTable
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.interfaces import OutRecord
from rtolap.metadata.records import CubeControl
from rtolap.model.cube import AggregationGroup, Schema
from rtolap.model.predicate import Compare
from rtolap.protocols.receiver.messages import HistorySnapshot, PartialQuery

from benchmarks import events
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryProducer

HOUR_MS = 3_600_000
VALUES = {"country": 10, "device": 4, "campaign": 5}
FILTER = Compare("device", "eq", "device-0001")
INGEST_EVENTS, INGEST_PART, INGEST_HOURS = 900_000, 300_000, 4
Sums = dict[str, tuple[int, int]]


def declared(topic: str = "bench") -> Schema:
    schema = events.schema(topic)
    group = AggregationGroup(include=("hour_start", *schema.cube.dimensions), mandatory=("hour_start",))
    return Schema(schema.table, msgspec.structs.replace(schema.cube, aggregation_groups=(group,)))


def rows_of(schema: Schema, rows: int, hour: int, dice: np.random.Generator) -> pa.Table:
    """Return one roll-up row of each combination, in the order in which they happened to come."""
    values = {**VALUES, "page": rows // int(np.prod(list(VALUES.values())))}
    order = dice.permutation(rows)
    columns: dict[str, pa.Array] = {
        "hour_start": pa.array(np.full(rows, (events.START_MS + hour * HOUR_MS) * 1000), pa.timestamp("us"))
    }
    for name, count in values.items():
        words = pa.array([f"{name}-{number:04d}" for number in range(count)])
        columns[name] = pa.DictionaryArray.from_arrays(pa.array((order % count).astype(np.int32)), words)
        order = order // count
    counts = dice.integers(1, 10, rows)
    target = physical_schema(schema, plain=False)
    for field in target:
        if field.name in columns:
            continue
        numbers = pa.array(counts if field.name == "__rows" else counts * dice.integers(1, 10**6, rows))
        columns[field.name] = numbers.cast(field.type)
    return pa.Table.from_arrays(
        [columns[name].cast(target.field(name).type) for name in target.names], schema=target
    )


def held(schema: Schema, folder: Path, tables: list[pa.Table]) -> LocalState:
    segments = {}
    for hour, table in enumerate(tables):
        start_ms = events.START_MS + hour * HOUR_MS
        info = write_fragment(folder, f"f{hour}", table, schema)
        fragment = open_fragment(folder / f"f{hour}{SUFFIX}", verify=True)
        local = LocalTable(fragment.table, info.events, {0: (hour, hour + 1)}, (1,), fragment=fragment)
        segments[start_ms] = LocalSegment(start_ms, (local,))
    return LocalState(positions={0: len(tables)}, segments=segments, assignment_epoch=1)


class Ways:
    def __init__(self, schema: Schema, folder: Path, tables: list[pa.Table], *, filtered: bool) -> None:
        self._schema = schema
        self._filtered = filtered
        self._plain = held(schema, folder, tables)
        self._beside = held(schema, folder, tables)
        started_s = time.process_time()
        jobs = cuboid_jobs(self._beside)
        for local in jobs:
            keep_cuboids(schema, self._beside, local, ReceiverSettings.cuboid_bytes_max)
        self.making_ms = (time.process_time() - started_s) * 1000
        self.cuboid_bytes = sum(local.cuboids.nbytes for local in jobs)
        self._cache = ResultCache(schema, ReceiverSettings.result_bytes_max)
        for _ in range(2):  # kept from the second time on
            self._answered(self._plain, self._cache)
        columns = ["country", "device", "__rows", "bytes_sent__sum"]
        self._arrow = pa.concat_tables([table.select(columns) for table in tables]).unify_dictionaries()
        self._duckdb = duckdb.connect(config={"threads": 1})
        words = {"country": pa.string(), "device": pa.string()}
        plain = pa.table(
            {name: self._arrow[name].cast(words.get(name, self._arrow[name].type)) for name in columns}
        )
        self._duckdb.register("plain", plain)
        self._duckdb.execute("CREATE TABLE held AS SELECT * FROM plain")
        self.all: Mapping[str, Callable[[], Sums]] = {
            "first time, out of rows": lambda: self._answered(self._plain, None),
            "first time, out of cuboids": lambda: self._answered(self._beside, None),
            "again": lambda: self._answered(self._plain, self._cache),
            "DuckDB, one thread": self._by_duckdb,
            "pyarrow, one thread": self._by_pyarrow,
        }

    def _answered(self, state: LocalState, cache: ResultCache | None) -> Sums:
        query = PartialQuery(
            self._schema.cube.name,
            ("country",),
            ("__rows", "bytes_sent__sum"),
            HistorySnapshot(),
            FILTER if self._filtered else None,
        )
        progress = ConsumerProgress(idle_after_s=1.0)
        table = answer(
            self._schema, state, query, owned=(0,), receiver_id="r", progress=progress, cache=cache
        )
        return _sums(table, "__rows", "bytes_sent__sum")

    def _by_duckdb(self) -> Sums:
        where = f"WHERE device = '{FILTER.value}'" if self._filtered else ""
        rows = self._duckdb.execute(
            f"SELECT country, SUM(__rows), SUM(bytes_sent__sum) FROM held {where} GROUP BY country"
        ).fetchall()
        return {country: (int(count), int(total)) for country, count, total in rows}

    def _by_pyarrow(self) -> Sums:
        table = self._arrow
        if self._filtered:
            table = table.filter(pc.field("device") == FILTER.value)
        grouped = table.group_by("country", use_threads=False).aggregate(
            [("__rows", "sum"), ("bytes_sent__sum", "sum")]
        )
        return _sums(grouped, "__rows_sum", "bytes_sent__sum_sum")


def _sums(table: pa.Table, count: str, total: str) -> Sums:
    columns = (table.column(name).to_pylist() for name in ("country", count, total))
    return {country: (int(rows), int(size)) for country, rows, size in zip(*columns, strict=True)}


def us_per_event(schema: Schema, values: list[bytes], *, beside: bool) -> float:
    """Make batches, checkpoints and merges as a receiver makes them, one after the other, and return µs per
    event, reading included."""
    broker = MemoryBroker()
    broker.create("bench", 1)
    for value in values:
        broker.append("bench", OutRecord(value, partition=0, timestamp_ms=events.START_MS))
    settings = ReceiverSettings(disk_free_bytes_min=0, batch_records_max=2_500)
    view = CubeView(
        control=CubeControl(enabled=True, assignment={"rs": (0,)}, assignment_epoch=1), start_offsets={0: 0}
    )
    with tempfile.TemporaryDirectory() as folder:
        core = CubeReceiver(
            schema,
            replica_set="rs",
            consumer=MemoryConsumer(broker, "bench", with_create_ms=True),
            producer=MemoryProducer(broker),
            folder=Path(folder),
            clock=SystemClock(),
            settings=settings,
        )
        started_s = time.process_time()
        while core.step(view):
            if (job := merge_job(core.state.segments, settings)) is not None:
                core.apply_merged(job, merge(schema, core.file.fragments, job))
            for local in cuboid_jobs(core.state) if beside else ():
                keep_cuboids(schema, core.state, local, settings.cuboid_bytes_max)
        return (time.process_time() - started_s) / len(values) * 1e6


def ingest(schema: Schema, rounds: int) -> dict[str, float]:
    values = [
        value
        for part in range(INGEST_EVENTS // INGEST_PART)
        for value in events.values(INGEST_PART, seed=part, span_ms=INGEST_HOURS * HOUR_MS, pages=400)
    ]
    taken: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds):
        for beside, times in taken.items():
            times.append(us_per_event(schema, values, beside=beside))
    without, with_cuboids = statistics.median(taken[False]), statistics.median(taken[True])
    return {"ratio": with_cuboids / without, "us_without": without, "us_with": with_cuboids}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tables", type=int, default=8)
    parser.add_argument("--table-rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--filtered", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--ingest", action="store_true")
    arguments = parser.parse_args()
    if arguments.ingest:
        costs = ingest(declared(), arguments.rounds)
        print(f"an event takes {costs['us_without']:.2f} µs without, {costs['us_with']:.2f} µs with cuboids")
        if arguments.json:
            print(json.dumps({"benchmark": "first_answers", **{k: round(v, 3) for k, v in costs.items()}}))
        return
    schema, dice = declared(), np.random.default_rng(1)
    tables = [rows_of(schema, arguments.table_rows, hour, dice) for hour in range(arguments.tables)]
    with tempfile.TemporaryDirectory() as folder:
        ways = Ways(schema, Path(folder), tables, filtered=arguments.filtered)
        taken_ms: dict[str, list[float]] = {name: [] for name in ways.all}
        expected = ways.all["first time, out of rows"]()
        for _ in range(arguments.rounds):
            for name, way in ways.all.items():
                started_s = time.process_time()
                found = way()
                taken_ms[name].append((time.process_time() - started_s) * 1000)
                if found != expected:
                    raise SystemExit(f"{name} answers {found}, not {expected}")
    medians = {name: statistics.median(times) for name, times in taken_ms.items()}
    rows = sum(table.num_rows for table in tables)
    print(f"{rows} rows in {len(tables)} tables, {len(expected)} groups; processor time, ms")
    for name, median_ms in medians.items():
        print(f"  {name:28}{median_ms:8.2f}   {min(taken_ms[name]):8.2f} at best")
    print(f"  cuboids: made in {ways.making_ms:.0f} ms, {ways.cuboid_bytes / (1 << 20):.2f} MiB")
    if arguments.json:
        figures = {
            "benchmark": "first_answers",
            "ratio": medians["DuckDB, one thread"] / medians["first time, out of cuboids"],
            "rows": rows,
            "making_ms": ways.making_ms,
            "cuboid_bytes": ways.cuboid_bytes,
            **{f"{name} ms": median_ms for name, median_ms in medians.items()},
        }
        print(json.dumps({key: round(v, 3) if isinstance(v, float) else v for key, v in figures.items()}))


if __name__ == "__main__":
    main()
