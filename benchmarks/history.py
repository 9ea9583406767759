"""The star schema benchmark's statements over READY cuboids of a disk, beside DuckDB over the raw rows.

    python -m benchmarks.history [--scale 1] [--rounds 5] [--clients 1 4 16] [--json]

Six million rows a scale, flat, by a generator of our own (the published benchmark's columns, value sets and
shares). History is written as builds leave it: segments of 30 days, the base cuboid and seven that the
statements need. The service and DuckDB are in this process, in turns; both may use all processors. `ratio`:
DuckDB's median over ours, of the statement that gains least among those that a cuboid of theirs answers;
`base_ratio`: of statements that only the base cuboid answers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
from rtolap.base.clock import SystemClock
from rtolap.base.errors import Unavailable
from rtolap.cubes.format.history import describe_file, write_manifest
from rtolap.cubes.format.manifest import CuboidEntry, HistoryManifest
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.memory import MemoryEnsemble, MemoryStore
from rtolap.metadata.records import CubeControl
from rtolap.model.cube import AggregationGroup, Cube, Measure, Schema, SegmentPolicy
from rtolap.model.cuboids import cuboids
from rtolap.model.segment import segment_of
from rtolap.model.segment_states import SegmentState
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.object_store.store import ObjectStore, open_store
from rtolap.query.cluster import Cluster
from rtolap.query.cubes.history import EmbeddedHistory
from rtolap.query.lookups import Lookups
from rtolap.query.statement_service import Limits, QueryService

ROWS_A_SCALE = 6_000_000
WINDOW_MS = 30 * 86_400_000
_DIMENSIONS = {
    **dict.fromkeys(("d_year", "d_yearmonthnum", "d_weeknuminyear", "lo_discount", "lo_quantity"), "int"),
    **dict.fromkeys(("c_region", "c_nation", "c_city", "s_region", "s_nation", "s_city"), "string"),
    **dict.fromkeys(("p_mfgr", "p_category", "p_brand1"), "string"),
}
_FLIGHTS = (
    ("d_year", "d_yearmonthnum", "d_weeknuminyear", "lo_discount", "lo_quantity"),
    ("d_year", "s_region", "p_category", "p_brand1"),
    ("d_year", "c_region", "c_nation", "s_region", "s_nation"),
    ("d_year", "d_yearmonthnum", "c_nation", "c_city", "s_nation", "s_city"),
    ("d_year", "c_region", "c_nation", "s_region", "p_mfgr"),
    ("d_year", "c_region", "s_region", "s_nation", "p_mfgr", "p_category"),
    ("d_year", "c_region", "s_nation", "s_city", "p_category", "p_brand1"),
)
_CITIES = "('UNITED KI1', 'UNITED KI5')"
STATEMENTS = {
    "1.1": "SELECT SUM(discounted) r FROM ssb WHERE d_year = 1993 AND lo_discount BETWEEN 1 AND 3 "
    "AND lo_quantity < 25",
    "1.2": "SELECT SUM(discounted) r FROM ssb WHERE d_yearmonthnum = 199401 AND lo_discount BETWEEN 4 AND 6 "
    "AND lo_quantity BETWEEN 26 AND 35",
    "1.3": "SELECT SUM(discounted) r FROM ssb WHERE d_weeknuminyear = 6 AND d_year = 1994 "
    "AND lo_discount BETWEEN 5 AND 7 AND lo_quantity BETWEEN 26 AND 35",
    "2.1": "SELECT SUM(lo_revenue) r, d_year, p_brand1 FROM ssb WHERE p_category = 'MFGR#12' "
    "AND s_region = 'AMERICA' GROUP BY d_year, p_brand1 ORDER BY d_year, p_brand1",
    "2.2": "SELECT SUM(lo_revenue) r, d_year, p_brand1 FROM ssb WHERE p_brand1 >= 'MFGR#2221' "
    "AND p_brand1 <= 'MFGR#2228' AND s_region = 'ASIA' GROUP BY d_year, p_brand1 ORDER BY d_year, p_brand1",
    "2.3": "SELECT SUM(lo_revenue) r, d_year, p_brand1 FROM ssb WHERE p_brand1 = 'MFGR#2239' "
    "AND s_region = 'EUROPE' GROUP BY d_year, p_brand1 ORDER BY d_year, p_brand1",
    "3.1": "SELECT c_nation, s_nation, d_year, SUM(lo_revenue) r FROM ssb WHERE c_region = 'ASIA' "
    "AND s_region = 'ASIA' AND d_year >= 1992 AND d_year <= 1997 GROUP BY c_nation, s_nation, d_year "
    "ORDER BY d_year, r DESC",
    "3.2": "SELECT c_city, s_city, d_year, SUM(lo_revenue) r FROM ssb WHERE c_nation = 'UNITED STATES' "
    "AND s_nation = 'UNITED STATES' AND d_year >= 1992 AND d_year <= 1997 GROUP BY c_city, s_city, d_year "
    "ORDER BY d_year, r DESC",
    "3.3": f"SELECT c_city, s_city, d_year, SUM(lo_revenue) r FROM ssb WHERE c_city IN {_CITIES} "
    f"AND s_city IN {_CITIES} AND d_year >= 1992 AND d_year <= 1997 GROUP BY c_city, s_city, d_year "
    "ORDER BY d_year, r DESC",
    "3.4": f"SELECT c_city, s_city, d_year, SUM(lo_revenue) r FROM ssb WHERE c_city IN {_CITIES} "
    f"AND s_city IN {_CITIES} AND d_yearmonthnum = 199712 GROUP BY c_city, s_city, d_year "
    "ORDER BY d_year, r DESC",
    "4.1": "SELECT d_year, c_nation, SUM(profit) r FROM ssb WHERE c_region = 'AMERICA' "
    "AND s_region = 'AMERICA' AND p_mfgr IN ('MFGR#1', 'MFGR#2') GROUP BY d_year, c_nation "
    "ORDER BY d_year, c_nation",
    "4.2": "SELECT d_year, s_nation, p_category, SUM(profit) r FROM ssb WHERE c_region = 'AMERICA' "
    "AND s_region = 'AMERICA' AND d_year IN (1997, 1998) AND p_mfgr IN ('MFGR#1', 'MFGR#2') "
    "GROUP BY d_year, s_nation, p_category ORDER BY d_year, s_nation, p_category",
    "4.3": "SELECT d_year, s_city, p_brand1, SUM(profit) r FROM ssb WHERE c_region = 'AMERICA' "
    "AND s_nation = 'UNITED STATES' AND d_year IN (1997, 1998) AND p_category = 'MFGR#14' "
    "GROUP BY d_year, s_city, p_brand1 ORDER BY d_year, s_city, p_brand1",
}
BASE_STATEMENTS = {
    "base 1": "SELECT lo_quantity, SUM(lo_revenue) r FROM ssb WHERE c_region = 'ASIA' AND p_mfgr = 'MFGR#3' "
    "GROUP BY lo_quantity ORDER BY lo_quantity",
    "base 2": "SELECT lo_discount, s_region, COUNT(*) n FROM ssb GROUP BY lo_discount, s_region "
    "ORDER BY lo_discount, s_region",
}


def schema() -> Schema:
    measured = ("lo_revenue", "discounted", "profit")
    columns = (
        Column("ts", "bigint"),
        *(Column(name, kind) for name, kind in _DIMENSIONS.items()),
        *(Column(name, "int") for name in measured),
    )
    cube = Cube(
        name="ssb",
        table="lineorder",
        dimensions=tuple(_DIMENSIONS),
        time_dimensions=("year",),
        aggregation_groups=tuple(AggregationGroup(include=names, mandatory=names) for names in _FLIGHTS),
        measures=(Measure("count"), *(Measure("sum", name) for name in measured)),
        segment=SegmentPolicy(window_ms=WINDOW_MS),
    )
    return Schema(
        Table(name="lineorder", topic="lineorder", columns=columns, time=TimeColumn("ts", "epoch_ms")), cube
    )


def generate(connection: Any, rows: int) -> None:
    """Make table `raw`: one row a line of an order, by hashes of its number."""
    nations = ", ".join(
        f"'{name}'"
        for name in (
            *("ALGERIA", "ETHIOPIA", "KENYA", "MOROCCO", "MOZAMBIQUE"),
            *("ARGENTINA", "BRAZIL", "CANADA", "PERU", "UNITED STATES"),
            *("CHINA", "INDIA", "INDONESIA", "JAPAN", "VIETNAM"),
            *("FRANCE", "GERMANY", "ROMANIA", "RUSSIA", "UNITED KINGDOM"),
            *("EGYPT", "IRAN", "IRAQ", "JORDAN", "SAUDI ARABIA"),
        )
    )
    regions = "'AFRICA', 'AMERICA', 'ASIA', 'EUROPE', 'MIDDLE EAST'"
    drawn = ", ".join(
        f"CAST(hash(i * 31 + {use}) % {count} AS INTEGER) AS {name}"
        for use, (name, count) in enumerate(
            {
                "day": 2406, "cn": 25, "cc": 10, "sn": 25, "sc": 10, "brand": 1000, "lo_quantity": 50,
                "lo_discount": 11, "price": 900,
            }.items()
        )
    )  # fmt: skip
    connection.execute(f"SET VARIABLE nations = [{nations}]")
    connection.execute(f"SET VARIABLE regions = [{regions}]")
    connection.execute(
        f"""
        CREATE TABLE raw AS
        WITH drawn AS (SELECT i, {drawn} FROM range({rows}) t(i)),
        named AS (
            SELECT *, DATE '1992-01-01' + day AS on_day, getvariable('nations')[cn + 1] AS c_nation,
                   getvariable('nations')[sn + 1] AS s_nation,
                   (price + 901) * 100 * (lo_quantity + 1) AS extended
            FROM drawn)
        SELECT CAST(epoch_ms(on_day) AS BIGINT) AS ts, CAST(year(on_day) AS INTEGER) AS d_year,
               CAST(year(on_day) * 100 + month(on_day) AS INTEGER) AS d_yearmonthnum,
               CAST((dayofyear(on_day) - 1) // 7 + 1 AS INTEGER) AS d_weeknuminyear,
               lo_discount, lo_quantity + 1 AS lo_quantity,
               getvariable('regions')[cn // 5 + 1] AS c_region, c_nation,
               rpad(left(c_nation, 9), 9, ' ') || cc AS c_city,
               getvariable('regions')[sn // 5 + 1] AS s_region, s_nation,
               rpad(left(s_nation, 9), 9, ' ') || sc AS s_city,
               'MFGR#' || (brand // 200 + 1) AS p_mfgr,
               'MFGR#' || (brand // 200 + 1) || (brand // 40 % 5 + 1) AS p_category,
               'MFGR#' || (brand // 200 + 1) || (brand // 40 % 5 + 1) || (brand % 40 + 1) AS p_brand1,
               CAST(extended * (100 - lo_discount) // 100 AS INTEGER) AS lo_revenue,
               CAST(extended * lo_discount // 100 AS INTEGER) AS discounted,
               CAST(extended * (100 - lo_discount) // 100 - (price + 901) * 60 AS INTEGER) AS profit
        FROM named
        """
    )


def build(connection: Any, store: ObjectStore, metadata: ClusterMetadata, made: Schema) -> int:
    """Every cuboid of every segment, as version 1. How many files there are."""
    cube, files = made.cube.name, 0
    sums = ", ".join(
        f"CAST(sum({each.source}) AS BIGINT) AS {each.name}"
        for each in made.partials
        if each.initial == "sum"
    )
    year = "date_trunc('year', epoch_ms(ts))::TIMESTAMP"
    for (start_ms,) in connection.execute(
        f"SELECT DISTINCT ts // {WINDOW_MS} * {WINDOW_MS} FROM raw ORDER BY 1"
    ).fetchall():
        segment = segment_of(start_ms, WINDOW_MS)
        location = f"history/{cube}/{segment.name}/v1-bench"
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE part AS SELECT *, {year} AS year_start FROM raw "
            f"WHERE ts >= {start_ms} AND ts < {start_ms + WINDOW_MS}"
        )
        entries = []
        for number, cuboid in enumerate(cuboids(made.cube)):
            folder = f"{location}/c{number}"
            Path(store.absolute(folder)).mkdir(parents=True)
            names = ", ".join(cuboid.dimensions)
            connection.execute(
                f"COPY (SELECT {names}, count(*) AS __rows, {sums} FROM part GROUP BY {names}) "
                f"TO '{store.absolute(folder)}/part-0.parquet' (FORMAT parquet, COMPRESSION zstd)"
            )
            file = describe_file(store, location, f"c{number}/part-0.parquet")
            entries.append(CuboidEntry(f"c{number}", cuboid.dimensions, file.rows, (file,)))
            files += 1
        manifest = HistoryManifest(
            cube=cube, segment=segment.name, version=1, build_id="bench", covered={0: 1}, events=1,
            cuboids=tuple(entries),
        )  # fmt: skip
        write_manifest(store, location, manifest)
        metadata.update_segment(
            cube,
            segment,
            partial(
                msgspec.structs.replace,
                state=SegmentState.READY,
                version=1,
                location=location,
                covered={0: 1},
            ),
        )
    return files


class _Nobody:
    """No receiver holds anything."""

    def _no(self, *arguments: Any) -> Any:
        raise Unavailable("there are no receivers")

    ask = stats = ping = _no


@contextmanager
def opened(scale: float, folder: Path) -> Iterator[tuple[QueryService, Any, dict[str, float]]]:
    clock, made = SystemClock(), schema()
    store = open_store((folder / "store").as_uri())
    metadata = ClusterMetadata(MemoryStore(MemoryEnsemble()), clock)
    metadata.create_table(made.table)
    metadata.create_cube(made.cube)
    metadata.update_control(made.cube.name, lambda _: CubeControl(enabled=True, assignment_epoch=1))
    with duckdb.connect() as connection:
        began_s = time.perf_counter()
        generate(connection, int(scale * ROWS_A_SCALE))
        files = build(connection, store, metadata, made)
        described = {"files": files, "built_in_s": round(time.perf_counter() - began_s, 1)}
        connection.execute("CREATE VIEW ssb AS SELECT * FROM raw")
        limits = Limits(queries_max=64, queries_per_user_max=64, queue_wait_s=60)
        service = QueryService(
            *(Cluster(metadata, clock), EmbeddedHistory(store), _Nobody(), Lookups(folder), clock, limits)
        )
        try:
            yield service, connection, described
        finally:
            service.close()


def check(service: QueryService, connection: Any) -> None:
    """Both answer the same."""
    for name, sql in (STATEMENTS | BASE_STATEMENTS).items():
        ours = [tuple(row.values()) for row in service.execute(sql).table().to_pylist()]
        theirs = connection.execute(sql).fetchall()
        key = 3 if name.startswith("3") else 0  # ties of the third flight's order are in any order
        assert (sorted(ours, key=repr) if key else ours) == (sorted(theirs, key=repr) if key else theirs), (
            name
        )


def _ours(service: QueryService, sql: str) -> pa.Table:
    return service.execute(sql).table()


def _theirs(connection: Any, sql: str) -> object:
    return connection.cursor().execute(sql).fetchall()


def took_ms(call: Callable[[], object], rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        began_s = time.perf_counter()
        call()
        times.append((time.perf_counter() - began_s) * 1000)
    return times


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory() as name,
        opened(arguments.scale, Path(name)) as (service, raw, figures),
    ):
        check(service, raw)
        asked = STATEMENTS | BASE_STATEMENTS
        times: dict[str, dict[str, list[float]]] = {name: {"rtolap": [], "duckdb": []} for name in asked}
        for _ in range(arguments.rounds):
            for name, sql in asked.items():
                times[name]["rtolap"] += took_ms(partial(_ours, service, sql), 3)
                times[name]["duckdb"] += took_ms(partial(_theirs, raw, sql), 3)
        per_s = {
            clients: {
                "rtolap": rate(partial(_ours, service), clients),
                "duckdb": rate(partial(_theirs, raw), clients),
            }
            for clients in arguments.clients
        }
    medians = {
        name: {who: round(statistics.median(values), 2) for who, values in both.items()}
        for name, both in times.items()
    }
    ratios = {name: round(both["duckdb"] / both["rtolap"], 2) for name, both in medians.items()}
    return {
        "scale": arguments.scale,
        **figures,
        "ms": medians,
        "ratios": ratios,
        "statements_per_s": per_s,
        "base_ratio": min(ratios[name] for name in BASE_STATEMENTS),
        "ratio": min(ratios[name] for name in STATEMENTS),
    }


def rate(ask: Callable[[str], object], clients: int) -> float:
    """Statements of the benchmark a second, by so many clients at once."""

    def client(_: int) -> None:
        for sql in STATEMENTS.values():
            ask(sql)

    with ThreadPoolExecutor(clients) as pool:
        began_s = time.perf_counter()
        list(pool.map(client, range(max(4, clients))))
        return round(max(4, clients) * len(STATEMENTS) / (time.perf_counter() - began_s), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = run(arguments)
    print(json.dumps(figures) if arguments.json else json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
