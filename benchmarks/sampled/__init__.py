"""Samples of where a process spends its processor time: `sampling` takes them, this reads them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from benchmarks.hooks import Hook

# The first row of which a word is found in "thread | function of the product > innermost function" counts.
ROWS = (
    ("librdkafka's threads", ("rdk:",)),
    ("this sampler", ("sampler |",)),
    ("checkpoints, fragments", ("flush-", "fragment", "checkpointing", "fragments.", "checkpoint.")),
    (
        "answers: reading and merging",
        ("result_cache", "query_service", "to_plain", "_compacted"),
    ),
    ("answers: Flight, its guard, Arrow", ("flight", "grpc", "event_engine", "server.", "endpoint.")),
    ("consume: messages to columns", ("kafka.",)),
    ("decode: strict check and parse", ("events.json_reader", "events.rows")),
    ("decode: loss screen", ("events.lossy",)),
    ("decode: columns", ("events.",)),
    (
        "group a batch",
        ("local.batch", "aggregate_events", "time_keys", "_of_buckets", "groups.", "reduce.", "local.align"),
    ),
    ("merge tables in memory", ("aggregate.", "local.tables")),
    ("the rest of a step", ("core-",)),
    ("everything else", ("",)),
)


def hook(file: Path) -> Hook:
    """Return the hook that has the receiver sampled into this file."""
    return Hook("benchmarks.sampled.sampling", str(file), ("receiver",))


def taken_ns(file: Path) -> Counter[str]:
    return Counter(json.loads(file.read_text()))


def report(before: Counter[str], after: Counter[str], seconds: float, places: int) -> None:
    taken = after - before
    whole = sum(taken.values())
    print(f"processor time of the receiver: {whole / 1e9 / seconds:.2f} s a second")
    rows: Counter[str] = Counter()
    for place, ns in taken.items():
        rows[next(row for row, words in ROWS if any(word in place for word in words))] += ns
    for row, _ in ROWS:
        print(f"  {row:40} {rows[row] / 1e9 / seconds:6.3f} {rows[row] / whole:6.1%}")
    for place, ns in taken.most_common(places):
        print(f"    {ns / 1e9 / seconds:6.3f} {place}")
