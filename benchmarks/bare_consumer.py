"""A bare consumer of one partition: when it has each record, for the least latency that a program could see.

    python -m benchmarks.bare_consumer BOOTSTRAP TOPIC BEGIN END FILE

It reads partition 0 from offset BEGIN until END with the settings of the product's consumers, makes nothing
of the records, and writes, for each of its polls, the time of `time.monotonic_ns` and the offset behind the
last record. `benchmarks.freshness --bare` runs it beside the services: what it takes is the time of Kafka, of
the producer and of the client, and the wait of a process for a processor, on the machine as it is then.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, TopicPartition
from rtolap.kafka.settings import consumer_settings

PARTITION = 0
POLL_S = 0.5
SILENT_S_MAX = 60.0
RECORDS_MAX = 10_000


def command(bootstrap: str, topic: str, begin: int, end: int, path: Path) -> list[str]:
    arguments = (bootstrap, topic, str(begin), str(end), str(path))
    return [sys.executable, "-m", "benchmarks.bare_consumer", *arguments]


def latencies_ms(
    path: Path, made_ns: npt.NDArray[np.int64], per_slice: int, first_slice: int, begin: int
) -> npt.NDArray[np.float64]:
    """Return the latencies of the partition's events from `first_slice` on. `begin`: the first offset."""
    with np.load(path) as noted:
        read_ns, ends = noted["read_ns"], noted["ends"]
    created_ns = np.repeat(made_ns[first_slice:, PARTITION], per_slice)
    offsets = np.arange(len(created_ns)) + begin + first_slice * per_slice
    first = np.searchsorted(ends, offsets, side="right")
    return np.asarray((read_ns[first] - created_ns) / 1e6, np.float64)


def read(bootstrap: str, topic: str, begin: int, end: int, path: Path) -> None:
    consumer = Consumer(consumer_settings("bare") | {"bootstrap.servers": bootstrap})
    consumer.assign([TopicPartition(topic, PARTITION, begin)])
    read_ns: list[int] = []
    ends: list[int] = []
    at, heard_s = begin, time.monotonic()
    while at < end:
        taken = [*consumer.consume(1, POLL_S), *consumer.consume(RECORDS_MAX, 0)]
        now_ns = time.monotonic_ns()
        records = [message for message in taken if message.error() is None]
        if not records:
            if time.monotonic() - heard_s > SILENT_S_MAX:
                raise SystemExit(f"nothing came behind offset {at}, of {end}")
            continue
        heard_s = time.monotonic()
        at = (records[-1].offset() or 0) + 1
        read_ns.append(now_ns)
        ends.append(at)
    consumer.close()
    np.savez(path, read_ns=np.array(read_ns), ends=np.array(ends))


if __name__ == "__main__":
    bootstrap_, topic_, begin_, end_, path_ = sys.argv[1:]
    read(bootstrap_, topic_, int(begin_), int(end_), Path(path_))
