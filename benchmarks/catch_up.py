"""How long live records wait while another partition has a backlog: read together, and read apart.

    python -m benchmarks.catch_up [--backlog 400000] [--seconds 8] [--rounds 3] [--json]

A real broker. One partition has a backlog, another gets records at an even rate, each with the time at which
it was made. A reader takes batches and works a fixed time on each record, so that the backlog takes longer to
read than the run lasts. Both ways take turns, on topics of their own; figures are medians of the rounds.

`ratio` is the p99 wait of live records read apart, over that of records read together.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable

import numpy as np
from confluent_kafka import Producer
from rtolap.kafka.catch_up import CatchUpBounds
from rtolap.kafka.catch_up_consumer import CatchUpConsumer
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.kafka.interfaces import StreamConsumer

from benchmarks.servers import create_topic, kafka

LIVE_PER_S = 1_000
RECORD_BYTES = 200
WORK_S = 50e-6  # on each record: 20 000 a second
BATCH_RECORDS = 10_000
WARM_UP_S = 2.0  # the backlog is noticed in it


def _fill(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": count + 1})
    for _ in range(count):
        producer.produce(topic, b"b" * RECORD_BYTES, partition=0)
    producer.flush()


def _send_live(bootstrap: str, topic: str, ended: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
    while not ended.wait(0.01):
        for _ in range(LIVE_PER_S // 100):
            value = b"%019d" % time.monotonic_ns()
            producer.produce(topic, value.ljust(RECORD_BYTES), partition=1)
        producer.poll(0)
    producer.flush()


def waits_ms(bootstrap: str, consumer: StreamConsumer, seconds: float) -> tuple[list[float], int]:
    """The waits of live records in ms, and how many of the backlog were read meanwhile."""
    ended = threading.Event()
    sender = threading.Thread(target=_send_live, args=(bootstrap, consumer.topic, ended))
    consumer.assign({0: 0, 1: 0})
    sender.start()
    begun_s = time.monotonic()
    waits: list[float] = []
    backlog = 0
    while (passed_s := time.monotonic() - begun_s) < seconds + WARM_UP_S:
        batch = consumer.poll(BATCH_RECORDS, 0.05)
        time.sleep(len(batch) * WORK_S)
        live = np.flatnonzero(batch.partitions == 1).tolist()
        backlog += len(batch) - len(live)
        now_ns = time.monotonic_ns()
        if passed_s >= WARM_UP_S:
            made_ns = (int((batch.values[row] or b"0")[:19]) for row in live)
            waits += [(now_ns - made) / 1e6 for made in made_ns]
    ended.set()
    sender.join()
    consumer.close()
    return waits, backlog


def run(backlog: int, seconds: float, rounds: int) -> dict[str, object]:
    ways: dict[str, Callable[[str, str], StreamConsumer]] = {
        "together": KafkaConsumer,
        "apart": lambda bootstrap, topic: CatchUpConsumer(
            lambda: KafkaConsumer(bootstrap, topic), CatchUpBounds()
        ),
    }
    found: dict[str, list[tuple[float, float, int]]] = {way: [] for way in ways}
    with kafka() as bootstrap:
        for number in range(rounds):
            for way, open_consumer in ways.items():
                topic = f"{way}_{number}"
                create_topic(bootstrap, topic, 2)
                _fill(bootstrap, topic, backlog)
                waits, read = waits_ms(bootstrap, open_consumer(bootstrap, topic), seconds)
                p50, p99 = np.percentile(waits, [50, 99]) if waits else (np.inf, np.inf)
                found[way].append((float(p50), float(p99), read))
    medians = {
        way: dict(
            zip(
                ("p50_ms", "p99_ms", "backlog_read"),
                map(statistics.median, zip(*runs, strict=True)),
                strict=True,
            )
        )
        for way, runs in found.items()
    }
    ratio = medians["apart"]["p99_ms"] / medians["together"]["p99_ms"]
    return {**medians, "backlog": backlog, "live_per_s": LIVE_PER_S, "work_us": WORK_S * 1e6, "ratio": ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backlog", type=int, default=400_000)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result = run(arguments.backlog, arguments.seconds, arguments.rounds)
    if arguments.json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            print(f"{key:14} {value}")


if __name__ == "__main__":
    main()
