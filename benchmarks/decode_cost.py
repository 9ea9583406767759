"""Measure what decoding and grouping a record costs, stage by stage: nanoseconds of processor time, one core.

    python -m benchmarks.decode_cost [--events 50000] [--rounds 15] [--json]

Each stage runs alone over what the one before it has made of the same 200-byte records; rounds go through all
stages in turn, and the least and the median of each are printed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import arro3.io
import msgspec
import numpy as np
import pyarrow as pa
from rtolap.base.clock import SystemClock
from rtolap.base.cycle_collection import CycleCollection
from rtolap.cubes.receiver.local.batch import batch_tables
from rtolap.events.decode import EventDecoder
from rtolap.events.event_time import EventTimeParser
from rtolap.events.json_reader import JsonLines
from rtolap.events.lossy import LossScreen
from rtolap.events.plan import ReadPlan
from rtolap.events.rows import CHUNK_RECORDS, known_names

from benchmarks import events


def stages(count: int) -> dict[str, Callable[[], object]]:
    values, schema = events.values(count, seed=1), events.schema("bench")
    time_column = schema.table.time
    plan = ReadPlan(schema, EventTimeParser(time_column.format, time_column.zone))
    lines, screen = JsonLines(plan.arrow_schema, known_names(plan.known)), LossScreen(plan.strict())
    chunks = [values[first : first + CHUNK_RECORDS] for first in range(0, count, CHUNK_RECORDS)]
    texts = [read.text for chunk in chunks if (read := lines.read(chunk)) is not None]
    strict = msgspec.json.Decoder(known_names(plan.known))
    partitions, offsets = np.zeros(count, np.int32), np.arange(count)
    decoder, created_ms = EventDecoder(schema), np.full(count, events.START_MS)
    now_ms = events.START_MS

    def decode() -> pa.Table:
        decoded = decoder.decode(values, partitions, offsets, now_ms=now_ms, create_ms=created_ms)
        return decoded.table

    table = decode()
    return {
        "join": lambda: [b"\n".join(chunk) for chunk in chunks],
        "strict check": lambda: [strict.decode_lines(text) for text in texts],
        "columnar reader": lambda: [
            pa.table(arro3.io.read_json(text, plan.arrow_schema, batch_size=CHUNK_RECORDS + 1))
            for text in texts
        ],
        "loss screen": lambda: [screen.suspects(text) for text in texts],
        "decode, these included": decode,
        "group the batch": lambda: batch_tables(schema, table, {}, None),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    CycleCollection(SystemClock()).begin()  # as the process of a receiver does
    taken: dict[str, list[float]] = {}
    every = stages(arguments.events)
    for _ in range(arguments.rounds):
        for name, stage in every.items():
            taken.setdefault(name, []).append(_ns(stage) / arguments.events)
    figures = {
        name: {"least_ns": min(each), "median_ns": statistics.median(each)} for name, each in taken.items()
    }
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, of_stage in figures.items():
        print(f"  {name:24} {of_stage['least_ns']:6.0f} {of_stage['median_ns']:6.0f} ns a record")


def _ns(stage: Callable[[], object]) -> int:
    begun_ns = time.thread_time_ns()
    stage()
    return time.thread_time_ns() - begun_ns


if __name__ == "__main__":
    main()
