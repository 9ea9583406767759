"""COUNT(DISTINCT …) over many partial rows: sketches united before the engine, beside handing them over.

    python -m benchmarks.distinct [--rows 40000] [--groups 20] [--values 300] [--rounds 3] [--json]

Both ways give the same answers, each in a process of its own: `unmerged` registers every partial row with
its sketch in the embedded engine, which lists them per group; `merged` unites them group by group first, as
a query does. Memory is what the peak resident size grew by; time is the median of the rounds.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
from rtolap.columnar.hll_image import image_of_coupons
from rtolap.query.cubes.merge import group_partials
from rtolap.query.engine import EmbeddedEngine
from rtolap.query.plan import CubeRead, TimeRange

from tests.support.cubes.flights import flights_schema

LG_K = 12
SQL = (
    'SELECT "origin", CAST(HLL_ESTIMATE(LIST("passenger__hll")) AS BIGINT) AS n '
    'FROM "__relation_flights" GROUP BY "origin" ORDER BY "origin"'
)


def partial_rows(rows: int, groups: int, values: int) -> pa.Table:
    """Return each with a sketch of `values` values, some of them common to all."""
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 1 << 26, (rows, values), dtype=np.uint32)
    zeros = np.minimum(rng.geometric(0.5, (rows, values)), 40).astype(np.uint32)
    images = [image_of_coupons(row, LG_K) for row in keys | zeros << np.uint32(26)]
    origins = [f"g{group:04}" for group in rng.integers(0, groups, rows)]
    return pa.table(
        {
            "origin": pa.array(origins),
            "__rows": pa.array(np.ones(rows, np.int64)),
            "passenger__hll": pa.array(images, pa.binary()),
        }
    )


def measure(way: str, rows: int, groups: int, values: int, rounds: int) -> dict[str, object]:
    schema = flights_schema()
    partials = ("__rows", "passenger__hll")
    read = CubeRead(schema, "__relation_flights", ("origin",), partials, None, TimeRange())
    table = partial_rows(rows, groups, values)
    engine = EmbeddedEngine(memory_limit_bytes=4 << 30, threads=2)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times_s, answer = [], []
    for _ in range(rounds):
        started_s = time.perf_counter()
        session = engine.session()
        session.register(read.relation, group_partials(read, table) if way == "merged" else table)
        answer = session.read(SQL, {}).to_pylist()
        session.close()
        times_s.append(time.perf_counter() - started_s)
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    engine.close()
    return {
        "seconds": round(statistics.median(times_s), 3),
        "grown_mib": (peak_kib - before_kib) >> 10,
        "sketches_mib": table.nbytes >> 20,
        "answer": answer,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--values", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--way", choices=["merged", "unmerged"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = {name: getattr(options, name) for name in ("rows", "groups", "values", "rounds")}
    if options.way is not None:
        print(json.dumps(measure(options.way, **sizes)))
        return
    figures = {}
    for way in ("unmerged", "merged"):
        arguments = [part for name, value in sizes.items() for part in (f"--{name}", str(value))]
        command = [sys.executable, "-m", "benchmarks.distinct", "--way", way, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        figures[way] = json.loads(done.stdout.splitlines()[-1])
    assert figures["merged"].pop("answer") == figures["unmerged"].pop("answer"), "both ways count the same"
    ratio = round(figures["merged"]["seconds"] / figures["unmerged"]["seconds"], 3)
    if options.json:
        print(json.dumps({**sizes, **figures, "ratio": ratio}))
        return
    mib = figures["merged"]["sketches_mib"]
    print(f"{options.rows} partial rows, {mib} MiB of sketches, {options.groups} groups")
    for way, figure in figures.items():
        print(f"  {way:9} {figure['seconds']:7.3f} s   memory grew by {figure['grown_mib']} MiB")
    print(f"  merged / unmerged: {ratio}")


if __name__ == "__main__":
    main()
