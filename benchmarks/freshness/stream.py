"""The stream of events, sent by processes of its own, and when each event was made.

    python -m benchmarks.freshness.stream live BOOTSTRAP RATE SECONDS PAGES FILE
    python -m benchmarks.freshness.stream held BOOTSTRAP COUNT PAGES

An event's create time is taken just before it is handed to the client, so the client's own batching counts.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from confluent_kafka import Producer

from benchmarks import events
from benchmarks.servers import fill

TOPIC = "fresh"
PARTITIONS = 4
BASE_EVENTS = 200_000  # sent over and over
SLICE_S = 0.01
WARM_UP_S = 3.0

HELD_BASE = 1_000_000
HELD_SPAN_MS, PAGES = 86_400_000, 400

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Produced:
    """When the events of the stream were made.

    Attributes:
        made_ns: of `time.monotonic_ns`, a row a slice, a column a partition.
        per_slice: events of a slice in each partition.
        begin: offset of the first event in each partition.
    """

    made_ns: Int64s
    per_slice: int
    begin: int

    @property
    def ends(self) -> tuple[int, ...]:
        """The offsets behind the last event, by partition."""
        return (self.begin + len(self.made_ns) * self.per_slice,) * PARTITIONS

    @property
    def first_slice(self) -> int:
        """The first slice that is measured: those before warm everything up."""
        return round(WARM_UP_S / SLICE_S)

    @property
    def from_ns(self) -> int:
        return int(self.made_ns[self.first_slice, 0])

    @property
    def until_ns(self) -> int:
        return int(self.made_ns[-1, -1])


def slices_of(rate: int, seconds: float) -> tuple[int, int]:
    """Return how many events of a partition a slice has, and how many slices there are."""
    return max(1, round(rate * SLICE_S / PARTITIONS)), round(seconds / SLICE_S)


def live(bootstrap: str, rate: int, seconds: float, pages: int, path: Path) -> subprocess.Popen[bytes]:
    """Start the process that sends the stream, its warm-up before it; `produced` reads what it notes."""
    arguments = (bootstrap, str(rate), str(seconds + WARM_UP_S), str(pages), str(path))
    return subprocess.Popen([sys.executable, "-m", __name__, "live", *arguments])


def produced(path: Path, begin: int) -> Produced:
    """Return what `live` noted. `begin`: the first offset that it sent to."""
    with np.load(path) as noted:
        return Produced(noted["made_ns"], int(noted["per_slice"]), begin)


def send_held(bootstrap: str, count: int, pages: int) -> None:
    """Have a process send `count` events, the same number to each partition, and wait for it."""
    command = [sys.executable, "-m", __name__, "held", bootstrap, str(count), str(pages)]
    subprocess.run(command, check=True)


def held_values(count: int, pages: int = PAGES) -> Iterator[list[bytes]]:
    """Yield `count` events in blocks, in the order of time: an hour is over when the next one begins."""
    blocks = -(-count // HELD_BASE)
    span_ms = HELD_SPAN_MS // max(blocks, 1)
    for number, left in enumerate(range(count, 0, -HELD_BASE)):
        yield events.values(
            min(left, HELD_BASE),
            seed=100 + number,
            start_ms=events.START_MS + number * span_ms,
            span_ms=span_ms,
            pages=pages,
        )


# -- the processes ------------------------------------------------------------------------------------------


def _send_live(bootstrap: str, rate: int, seconds: float, pages: int, path: Path) -> None:
    """Send at an even rate; write, a slice and partition a row, the create time.

    A late slice is sent at once and the next ones keep their times, so that a stall is followed by a burst;
    an event's create time is when it was really made.
    """
    values = [{"value": value} for value in events.values(BASE_EVENTS, seed=1, pages=pages)]
    per_partition, slices = slices_of(rate, seconds)
    made_ns = np.zeros((slices, PARTITIONS), np.int64)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,  # offsets come in the order of sending
            "linger.ms": 1,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": max(100_000, rate),
            "compression.type": "lz4",
        }
    )
    producer.list_topics(TOPIC, timeout=10)  # connected before the clock starts
    at, started_ns = 0, time.monotonic_ns()
    for number in range(slices):
        due_ns = started_ns + round(number * SLICE_S * 1e9)
        time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
        for partition in range(PARTITIONS):
            part = values[at : at + per_partition]
            made_ns[number, partition] = time.monotonic_ns()
            if producer.produce_batch(TOPIC, part, partition=partition) != per_partition:
                raise SystemExit(f"the producer's queue is full: Kafka does not keep up with {rate} events/s")
            at = at + per_partition if at + 2 * per_partition <= len(values) else 0
        producer.poll(0)
    if producer.flush(60):
        raise SystemExit("Kafka did not take all events within 60 s")
    np.savez(path, made_ns=made_ns, per_slice=per_partition)


def _send_held(bootstrap: str, count: int, pages: int) -> None:
    for values in held_values(count, pages):
        fill(bootstrap, TOPIC, values, partitions=PARTITIONS, create=False)


if __name__ == "__main__":
    what, bootstrap_, *words = sys.argv[1:]
    if what == "held":
        _send_held(bootstrap_, *map(int, words))
    else:
        rate_, seconds_, pages_, path_ = words
        _send_live(bootstrap_, int(rate_), float(seconds_), int(pages_), Path(path_))
