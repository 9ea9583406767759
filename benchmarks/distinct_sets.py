"""What exact distinct counts cost beside sketches: processor time of rolling up and merging, and bytes.

    python -m benchmarks.distinct_sets [--events 400000] [--groups 100] [--values 100000] [--json]

Events of `--values` users in `--groups` groups are rolled up batch by batch as a receiver does it, eight
tables into one, and in the end all into one row for each group. Users are numbers one behind the other (dense
ids), numbers of 64 bits (sparse ids), or texts of 36 characters. Each is counted exactly, by a sketch, and
not at all. Bytes are those of the merged rows: in memory, and as a Parquet file of history. Beside them stand
the bytes of the same sets as roaring bitmaps of 64 bits in their portable form, of numbers.
"""

from __future__ import annotations

import argparse
import json
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64
from rtolap.columnar.schema import EVENT_MS, OFFSET, PARTITION
from rtolap.cubes.format.aggregate import aggregate_events, merge_tables, to_plain
from rtolap.model.cube import Cube, Measure, Schema, SegmentPolicy
from rtolap.model.table import Column, Table, TimeColumn

BATCH_ROWS = 10_000
FAN_OUT = 8
START_MS = 1_356_998_400_000
_SPREAD = 0x9E3779B97F4A7C15F39CC0605
USERS = ("dense", "sparse", "text")
WAYS: dict[str, tuple[Measure, ...]] = {
    "none": (),
    "sketch": (Measure("approx_distinct", "user"),),
    "exact": (Measure("count_distinct", "user", lg_max=22),),
}


def schema_of(kind: str, measures: tuple[Measure, ...]) -> Schema:
    user = Column("user", "string" if kind == "text" else "bigint")
    table = Table(
        name="visits",
        topic="visits",
        columns=(Column("at", "bigint"), Column("shop", "int"), user),
        time=TimeColumn("at"),
    )
    cube = Cube(
        name="visits",
        table="visits",
        dimensions=("shop",),
        time_dimensions=("day",),
        measures=(Measure("count"), *measures),
        segment=SegmentPolicy(window_ms=86_400_000),
    )
    return Schema(table, cube)


def made_events(kind: str, events: int, groups: int, values: int) -> pa.Table:
    rng = np.random.default_rng(1)
    drawn = rng.integers(0, values, events)
    at_ms = START_MS + np.sort(rng.integers(0, 3_600_000, events))
    match kind:
        case "dense":
            users = pa.array(drawn)
        case "sparse":
            users = pa.array(rng.integers(-(1 << 63), 1 << 63, values, dtype=np.int64)[drawn])
        case _:
            names = [str(uuid.UUID(int=number * _SPREAD)) for number in range(values)]
            users = pa.array(names).take(pa.array(drawn))
    return pa.table(
        {
            "at": at_ms,
            "shop": pa.array(rng.integers(0, groups, events).astype(np.int32)),
            "user": users,
            EVENT_MS: at_ms,
            PARTITION: np.zeros(events, np.int32),
            OFFSET: np.arange(events),
        }
    )


def rolled_up(schema: Schema, events: pa.Table) -> pa.Table:
    """Return one row for each group, merged as a receiver's tables are."""
    levels: list[list[pa.Table]] = [[]]
    for start in range(0, events.num_rows, BATCH_ROWS):
        levels[0] += aggregate_events(schema, events.slice(start, BATCH_ROWS)).values()
        for place in range(len(levels)):
            if len(levels[place]) >= FAN_OUT:
                if place + 1 == len(levels):
                    levels.append([])
                levels[place + 1].append(merge_tables(schema, levels[place]))
                levels[place] = []
    return merge_tables(schema, [table for level in levels for table in level])


def timed(work: Callable[[], pa.Table], rounds: int) -> tuple[float, pa.Table]:
    """Return the least processor time, in seconds, and the last result."""
    times_s, result = [], None
    for _ in range(rounds):
        started_s = time.process_time()
        result = work()
        times_s.append(time.process_time() - started_s)
    assert result is not None, "at least one round"
    return min(times_s), result


def stored_bytes(table: pa.Table) -> int:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", coerce_timestamps="us", version="2.6", store_schema=False)
    return int(sink.getvalue().size)


def roaring_bytes(events: pa.Table) -> int:
    """Return the bytes of the groups' sets as bitmaps, numbers as unsigned."""
    shops = events.column("shop").to_numpy()
    users = events.column("user").to_numpy().view(np.uint64)
    total = 0
    for shop in np.unique(shops):
        bitmap = BitMap64(np.unique(users[shops == shop]).tolist())
        bitmap.run_optimize()
        total += len(bitmap.serialize())
    return total


def measure(kind: str, events: int, groups: int, values: int, rounds: int) -> dict[str, dict[str, float]]:
    table = made_events(kind, events, groups, values)
    figures: dict[str, dict[str, float]] = {}
    for way, measures in WAYS.items():
        schema = schema_of(kind, measures)
        seconds, merged = timed(partial(rolled_up, schema, table), rounds)
        plain = to_plain(schema, merged)
        figures[way] = {
            "us_per_event": round(seconds / events * 1e6, 3),
            "memory_bytes": merged.nbytes,
            "parquet_bytes": stored_bytes(plain),
        }
    if kind != "text":
        figures["roaring"] = {"memory_bytes": roaring_bytes(table)}
    return figures


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--values", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    sizes = (options.events, options.groups, options.values, options.rounds)
    figures = {kind: measure(kind, *sizes) for kind in USERS}
    if options.json:
        print(json.dumps(figures))
        return
    print(f"{options.events} events of {options.values} users in {options.groups} groups")
    for kind, ways in figures.items():
        for way, figure in ways.items():
            shown = "   ".join(f"{name} {value:>12,}" for name, value in figure.items())
            print(f"  {kind:7}{way:8} {shown}")


if __name__ == "__main__":
    main()
