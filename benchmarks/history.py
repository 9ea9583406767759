"""Statements over READY cuboids and over half of them in real time, beside DuckDB and chDB over the raw rows.

    python -m benchmarks.history [--scale 1] [--rounds 5] [--clients 1 4 16] [--events 2800000] [--json]
    python -m benchmarks.history --engine spark [--scale 1] [--rounds 5] [--master MASTER] [--json]

Two worlds. The star schema benchmark's 13 statements (flat, six million rows a scale) and two that only the
base cuboid answers, over segments of 30 days with the base cuboid and seven that the statements need. And
fourteen days of events in segments of a day, all of them READY, or the last seven in a receiver's process.
Answers are compared first. The query service and the others are in this process, in turns; all may use all
processors.

Each statement of ours is timed three ways: `new`, its text was never seen, so it is parsed and rewritten;
`read`, its text is known and no result is kept, so that the rows in memory are filtered and grouped;
`repeated`, as the service is, which keeps results over versions. Each of the others has as many rounds.
`ratio`: DuckDB's median over `read`, of the statement that gains least among those that a cuboid of theirs
answers; `base_ratio`: of those that only the base cuboid answers; `cpu_ratio`: as `ratio`, of processor time,
which other work on the machine changes little; `chdb_ratio`: of chDB, if it is there
(`uv pip install --group peers`).

With `--engine spark` the star schema's statements are answered by this process and by a Spark Connect
service instead; see `benchmarks.history_engines`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
from rtolap.base.clock import SystemClock
from rtolap.base.errors import Unavailable
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl
from rtolap.object_store.store import ObjectStore, open_store
from rtolap.query.cluster.view import Cluster
from rtolap.query.cubes.history import EmbeddedHistory, LargeScans, MemoryBounds
from rtolap.query.engine_choice import EngineRules
from rtolap.query.lookups import Lookups
from rtolap.query.statement_cache import StatementCache
from rtolap.query.statement_service import QueryLimits, QueryService

from benchmarks import fourteen_days
from benchmarks.ready_history import build, new_metadata
from benchmarks.star_schema import BASE_STATEMENTS, ROWS_A_SCALE, STATEMENTS, generate, schema

LIMITS = QueryLimits(queries_max=64, queries_per_user_max=64, queue_wait_s=60)
NO_RESULTS = MemoryBounds(result_bytes=0)
CALLS = 3  # of a statement in a row, each round
Ask = Callable[[str], object]


class _Nobody:
    """No receiver holds anything."""

    def _no(self, *arguments: Any) -> Any:
        raise Unavailable("there are no receivers")

    ask = stats = ping = ask_ahead = _no


class StarSchema(NamedTuple):
    """The benchmark's rows as READY cuboids and, for DuckDB, as they are."""

    store: ObjectStore
    metadata: ClusterMetadata
    raw: Any
    figures: dict[str, Any]

    @contextmanager
    def service(
        self, folder: Path, bounds: MemoryBounds, scans: LargeScans | None = None
    ) -> Iterator[QueryService]:
        """Yield a service that reads history itself; with `scans`, by them."""
        clock = SystemClock()
        rules = EngineRules(has_spark=scans is not None, spark_bytes_min=0)
        history = EmbeddedHistory(self.store, None, bounds, scans, rules)
        cluster = Cluster(self.metadata, clock)
        with closing(QueryService(cluster, history, _Nobody(), Lookups(folder), clock, LIMITS)) as service:
            yield service


@contextmanager
def star_schema(scale: float, folder: Path) -> Iterator[StarSchema]:
    made = schema()
    store = open_store((folder / "store").as_uri())
    metadata = new_metadata(made, CubeControl(enabled=True, assignment_epoch=1))
    with duckdb.connect() as raw:
        began_s = time.perf_counter()
        generate(raw, int(scale * ROWS_A_SCALE))
        files = build(raw, "raw", store, metadata, made, before_ms=1 << 62)
        figures = {"scale": scale, "files": files, "built_in_s": round(time.perf_counter() - began_s, 1)}
        raw.execute("CREATE VIEW ssb AS SELECT * FROM raw")
        yield StarSchema(store, metadata, raw, figures)


@contextmanager
def chdb(raw: Any, table: str, view: str, folder: Path) -> Iterator[Ask | None]:
    """Yield chDB with the rows of DuckDB's view in a table of its own, in the same order; None without
    chDB."""
    if find_spec("chdb") is None:
        yield None
        return
    path = folder / f"{table}.parquet"
    raw.execute(f"COPY (SELECT * FROM {view}) TO '{path}' (FORMAT parquet)")
    session = import_module("chdb.session").Session(str(folder / f"chdb-{table}"))
    try:
        columns = raw.execute(f"DESCRIBE {view}").fetchall()
        cast = ", ".join(
            f"CAST({name} AS LowCardinality(String)) AS {name}" if kind == "VARCHAR" else name
            for name, kind, *_ in columns
        )
        session.query(
            f"CREATE TABLE {table} ENGINE = MergeTree ORDER BY tuple() AS "
            f"SELECT {cast} FROM file('{path}', Parquet) SETTINGS schema_inference_make_columns_nullable = 0"
        )
        session.query(f"OPTIMIZE TABLE {table} FINAL")

        def ask(sql: str) -> object:
            return session.query(sql, "JSONCompactEachRow")

        yield ask
    finally:
        session.close()


def check(service: QueryService, raw: Any, statements: Mapping[str, str]) -> None:
    """Check that both answer the same."""
    for name, sql in statements.items():
        ours = [tuple(row.values()) for row in service.execute(sql).table().to_pylist()]
        theirs = raw.execute(sql).fetchall()
        if name.startswith("3"):  # ties of the third flight's order are in any order
            ours, theirs = sorted(ours, key=repr), sorted(theirs, key=repr)
        assert ours == theirs, f"{name}: {ours[:3]} and {theirs[:3]} of {len(ours)} and {len(theirs)} rows"


def _ours(service: QueryService, sql: str) -> pa.Table:
    return service.execute(sql).table()


def _as_new(service: QueryService, sql: str) -> pa.Table:
    vars(service._statement_cache).update(vars(StatementCache()))  # of one that knows no statement
    return _ours(service, sql)


def _theirs(raw: Any, sql: str) -> object:
    return raw.cursor().execute(sql).fetchall()


class Took(NamedTuple):
    """Times by the clock, and of the processor: of this process with all its threads."""

    clock_ms: float
    cpu_ms: float


def took(ask: Ask, sql: str) -> list[Took]:
    times = []
    for _ in range(CALLS):
        began_s, spent_s = time.perf_counter(), time.process_time()
        ask(sql)
        clock_s, cpu_s = time.perf_counter() - began_s, time.process_time() - spent_s
        times.append(Took(clock_s * 1000, cpu_s * 1000))
    return times


def in_turns(
    asks: Mapping[str, Ask], statements: Mapping[str, str], rounds: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return medians in milliseconds, by statement and answerer: by the clock, and of the processor."""
    times: dict[str, dict[str, list[Took]]] = {name: {who: [] for who in asks} for name in statements}
    for _ in range(rounds):
        for name, sql in statements.items():
            for who, ask in asks.items():
                times[name][who] += took(ask, sql)

    def medians(of: Callable[[Took], float]) -> dict[str, Any]:
        return {
            name: {who: round(statistics.median(map(of, each)), 2) for who, each in by_who.items()}
            for name, by_who in times.items()
        }

    return medians(lambda each: each.clock_ms), medians(lambda each: each.cpu_ms)


def rates(asks: Mapping[str, Ask], statements: Mapping[str, str], clients: list[int]) -> dict[int, Any]:
    """Return statements a second, by number of clients at once."""
    return {count: {who: rate(ask, statements, count) for who, ask in asks.items()} for count in clients}


def rate(ask: Ask, statements: Mapping[str, str], clients: int) -> float:
    def client(_: int) -> None:
        for sql in statements.values():
            ask(sql)

    with ThreadPoolExecutor(clients) as pool:
        began_s = time.perf_counter()
        list(pool.map(client, range(max(4, clients))))
        return round(max(4, clients) * len(statements) / (time.perf_counter() - began_s), 1)


def least(ms: Mapping[str, Mapping[str, float]], names: Mapping[str, str], peer: str, ours: str) -> float:
    """Return the ratio of the statement that gains least."""
    return round(min(ms[name][peer] / ms[name][ours] for name in names), 2)


def run_star_schema(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    asked = STATEMENTS | BASE_STATEMENTS
    with (
        star_schema(arguments.scale, folder) as star,
        star.service(folder, MemoryBounds()) as repeated,
        star.service(folder, NO_RESULTS) as read,
        chdb(star.raw, "ssb", "ssb", folder) as by_chdb,
    ):
        services, raw, figures = {"repeated": repeated, "read": read}, star.raw, star.figures
        began_s = time.perf_counter()
        check(services["repeated"], raw, asked)
        figures["first_of_process_s"] = round(time.perf_counter() - began_s, 2)
        check(services["read"], raw, asked)
        asks: dict[str, Ask] = {who: partial(_ours, service) for who, service in services.items()}
        asks |= {"duckdb": partial(_theirs, raw)} | ({} if by_chdb is None else {"chdb": by_chdb})
        parsing: dict[str, Ask] = {"new": partial(_as_new, services["read"])}
        ms, cpu_ms = in_turns(asks | parsing, asked, arguments.rounds)
        beside = {who: ask for who, ask in asks.items() if who != "chdb"}  # whose session is one at a time
        per_s = rates(beside, STATEMENTS, arguments.clients)
    for peer in [who for who in ("duckdb", "chdb") if who in asks]:
        prefix = "" if peer == "duckdb" else "chdb_"
        for kind in ("read", "repeated", "new"):
            name = "" if kind == "read" else f"{kind}_"
            figures[f"{prefix}{name}ratio"] = least(ms, STATEMENTS, peer, kind)
            figures[f"{prefix}{name}base_ratio"] = least(ms, BASE_STATEMENTS, peer, kind)
        figures[f"{prefix}cpu_ratio"] = least(cpu_ms, STATEMENTS, peer, "read")
        figures[f"{prefix}cpu_base_ratio"] = least(cpu_ms, BASE_STATEMENTS, peer, "read")
    ratios = {name: round(each["duckdb"] / each["read"], 1) for name, each in ms.items()}
    return figures | {"ms": ms, "cpu_ms": cpu_ms, "ratios": ratios, "statements_per_s": per_s}


def run_fourteen_days(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    statements = fourteen_days.STATEMENTS
    bounds = {"read": NO_RESULTS, "repeated": MemoryBounds()}
    with fourteen_days.opened(arguments.events, folder, LIMITS, bounds) as world:
        asks: dict[str, Ask] = {}
        for kind, services in world.services.items():
            for held, service in services.items():
                check(service, world.raw, statements)
                asks[f"{held}, {kind}"] = partial(_ours, service)
        asks["duckdb"] = partial(_theirs, world.raw)
        ms, cpu_ms = in_turns(asks, statements, arguments.rounds)
        per_s = rates(asks, statements, arguments.clients)
    ratios = {who: least(ms, statements, "duckdb", who) for who in asks if who != "duckdb"}
    return {**world.figures, "ms": ms, "cpu_ms": cpu_ms, "statements_per_s": per_s, "ratios": ratios}


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="rtolap-history-") as name:
        folder = Path(name)
        figures: dict[str, Any] = {}
        if arguments.engine == "spark":
            # pyspark is needed for nothing else here, and takes seconds to import.
            engines = import_module("benchmarks.history_engines")
            of_engines: dict[str, Any] = engines.run(arguments, folder)
            if not arguments.json:
                print(engines.table(of_engines))
            return of_engines
        if "days" in arguments.parts:
            figures["fourteen_days"] = run_fourteen_days(arguments, folder)
        if "star" in arguments.parts:
            figures |= run_star_schema(arguments, folder)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--events", type=int, default=2_800_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--parts", choices=["star", "days"], nargs="+", default=["star", "days"])
    parser.add_argument("--engine", choices=["local", "spark"], default="local")
    parser.add_argument("--master", default="local-cluster[2,1,1024]", help="of Spark, with --engine spark")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("ACERO_ALIGNMENT_HANDLING", "reallocate")  # as the query process has it
    figures = run(arguments)
    print(json.dumps(figures) if arguments.json else json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
