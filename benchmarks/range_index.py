"""A range over a numeric dimension of a fragment: processor time with an index of sorted values, and without.

    python -m benchmarks.range_index [--rows 1000000] [--values 1000000] [--rounds 7] [--json]

The rows have a number as their dimension, of `--values` values in no order. For ranges that keep a share of
the rows, `scan_ms` is what a fragment does: each row is judged, those that match are taken, grouped and
summed. `index_ms` is the same answer by an index that holds the values in order with their rows: two
searches, the rows in order, taken, grouped and summed. `index_bytes` and `build_ns` are what the index costs
a row. The answers are compared. Shown are the least times.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from rtolap.columnar.filter import mask
from rtolap.model.predicate import And, Compare

SHARES = (0.0001, 0.001, 0.01, 0.1)


def least_ms(rounds: int, work: Callable[[], object]) -> float:
    """Return the least processor time of the work, in milliseconds."""
    times = []
    for _ in range(rounds):
        began_s = time.process_time()
        work()
        times.append((time.process_time() - began_s) * 1000)
    return min(times)


def totals(rows: pa.Table) -> pa.Table:
    """Return the sum of each code of the dictionary, in the order in which rows have them first."""
    return rows.group_by("country", use_threads=False).aggregate([("duration", "sum")])


def measure(rows: int, values: int, rounds: int) -> dict[str, object]:
    rng = np.random.default_rng(7)
    numbers = rng.integers(0, values, rows)
    countries = pa.DictionaryArray.from_arrays(
        pa.array(rng.integers(0, 10, rows), pa.int32()), pa.array([f"c{n}" for n in range(10)])
    )
    table = pa.table(
        {
            "number": numbers,
            "country": countries,
            "duration": rng.integers(1, 60_000, rows),
            "bytes": rng.integers(1, 10**7, rows),
        }
    )
    order = np.argsort(numbers, kind="stable").astype(np.uint32)
    in_order = numbers[order]
    build_ms = least_ms(rounds, lambda: np.argsort(numbers, kind="stable"))
    ranges = []
    for share in SHARES:
        below = int(values * share)
        predicate = And((Compare("number", "ge", 0), Compare("number", "lt", below)))

        def scan(predicate: And = predicate) -> pa.Table:
            return totals(
                table.select(["country", "duration"]).filter(mask(table.select(["number"]), predicate))
            )

        def by_index(below: int = below) -> pa.Table:
            start, end = np.searchsorted(in_order, (0, below))
            return totals(table.select(["country", "duration"]).take(pa.array(np.sort(order[start:end]))))

        assert scan().equals(by_index()), "the index answers otherwise"
        ranges.append(
            {"share": share, "scan_ms": least_ms(rounds, scan), "index_ms": least_ms(rounds, by_index)}
        )
    return {
        "rows": rows,
        "values": values,
        "index_bytes": (order.nbytes + in_order.nbytes) / rows,
        "row_bytes": table.nbytes / rows,
        "build_ns": build_ms * 1e6 / rows,
        "ranges": ranges,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.rows, arguments.values, arguments.rounds)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print(
        f"{found['rows']:,} rows of {found['row_bytes']:.0f} bytes, {found['values']:,} values; "
        f"an index takes {found['index_bytes']:.0f} bytes a row, built in {found['build_ns']:.0f} ns a row"
    )
    for each in found["ranges"]:  # type: ignore[attr-defined]
        kept, scan, index = each["share"], each["scan_ms"], each["index_ms"]
        print(f"  {kept:7.2%} of the rows: scan {scan:6.2f} ms, index {index:6.2f} ms")


if __name__ == "__main__":
    main()
