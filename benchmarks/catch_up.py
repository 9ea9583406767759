"""Measure how long live records wait while other partitions have a backlog: read together, and read apart.

    python -m benchmarks.catch_up [--slow-broker] [--backlog 400000] [--seconds 8] [--rounds 3] [--json]
    python -m benchmarks.catch_up --behind 8000000 [--pages 400] [--settle-s 5] [--json]

A real broker. One partition has a backlog, another gets records at an even rate, each with the time at which
it was made. A reader takes batches and works a fixed time on each record, so that the backlog takes longer to
read than the run lasts. Both ways take turns, on topics of their own; figures are medians of the rounds.

`--slow-broker`: two brokers with such a pair of partitions each, half the backlog and the live rate on both.
One of them stands still (SIGSTOP) for 150 ms of every 250 ms; `well` are waits of live records of the other
one, `slow` of its own.

`ratio` is the p99 wait of live records read apart, over that of records read together, of the broker that is
well. `--behind`: the memory of a whole receiver that begins so many events behind, see `far_behind`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rtolap.kafka.catch_up import CatchUpBounds, CatchUpConsumer
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.kafka.interfaces import StreamConsumer
from rtolap.stack.artifacts import java_artifacts

from benchmarks import far_behind
from benchmarks.freshness.stream import PAGES
from benchmarks.servers import kafka
from tests.support.fleet.brokers import Brokers

LIVE_PER_S = 1_000
RECORD_BYTES = 200
WORK_S = 50e-6  # on each record: 20 000 a second
BATCH_RECORDS = 10_000
WARM_UP_S = 2.0  # the backlog is noticed in it
STOPPED_S, RUNNING_S = 0.15, 0.1


@dataclass(frozen=True)
class Place:
    """A topic's partitions of the backlog and of the live records."""

    name: str
    broker: int
    backlog: int
    live: int


ONE = (Place("well", 1, 0, 1),)
TWO = (*ONE, Place("slow", 2, 2, 3))


@contextmanager
def _servers(places: tuple[Place, ...]) -> Iterator[str]:
    """Yield the bootstrap address."""
    if len(places) == 1:
        with kafka() as bootstrap:
            yield bootstrap
        return
    with (
        tempfile.TemporaryDirectory(prefix="rtolap-bench-") as folder,
        Brokers(Path(folder), java_artifacts(), len(places)) as brokers,
    ):
        pid = brokers.servers[places[-1].broker].pid()
        assert pid is not None
        with _stopped_again_and_again(pid):
            yield brokers.servers[1].address


@contextmanager
def _stopped_again_and_again(pid: int) -> Iterator[None]:
    ended = threading.Event()

    def stop() -> None:
        while not ended.wait(RUNNING_S):
            os.kill(pid, signal.SIGSTOP)
            ended.wait(STOPPED_S)
            os.kill(pid, signal.SIGCONT)

    slowing = threading.Thread(target=stop)
    slowing.start()
    try:
        yield
    finally:
        ended.set()
        slowing.join()


def _create(bootstrap: str, topic: str, places: tuple[Place, ...]) -> None:
    leaders = {partition: place.broker for place in places for partition in (place.backlog, place.live)}
    if len(places) == 1:
        new = NewTopic(topic, num_partitions=2, replication_factor=1)
    else:
        assignment = [[leaders[partition]] for partition in sorted(leaders)]
        new = NewTopic(topic, num_partitions=len(assignment), replica_assignment=assignment)
    admin = AdminClient({"bootstrap.servers": bootstrap})  # it ends what it was asked for when it goes
    admin.create_topics([new])[topic].result(30)


def _fill(bootstrap: str, topic: str, places: tuple[Place, ...], count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": count + 1})
    for number in range(count):
        producer.produce(topic, b"b" * RECORD_BYTES, partition=places[number % len(places)].backlog)
    producer.flush()


def _send_live(bootstrap: str, topic: str, places: tuple[Place, ...], ended: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
    while not ended.wait(0.01):
        for number in range(LIVE_PER_S // 100):
            value = b"%019d" % time.monotonic_ns()
            place = places[number % len(places)]
            producer.produce(topic, value.ljust(RECORD_BYTES), partition=place.live)
        producer.poll(0)
    producer.flush()


def waits_ms(
    bootstrap: str, consumer: StreamConsumer, places: tuple[Place, ...], seconds: float
) -> tuple[dict[str, list[float]], int]:
    """Return the waits of live records in ms by place, and how many of the backlog were read meanwhile."""
    ended = threading.Event()
    sender = threading.Thread(target=_send_live, args=(bootstrap, consumer.topic, places, ended))
    consumer.assign({partition: 0 for place in places for partition in (place.backlog, place.live)})
    sender.start()
    begun_s = time.monotonic()
    waits: dict[str, list[float]] = {place.name: [] for place in places}
    backlog = 0
    while (passed_s := time.monotonic() - begun_s) < seconds + WARM_UP_S:
        batch = consumer.poll(BATCH_RECORDS, 0.05)
        time.sleep(len(batch) * WORK_S)
        now_ns = time.monotonic_ns()
        for place in places:
            live = np.flatnonzero(batch.partitions == place.live).tolist()
            backlog += int((batch.partitions == place.backlog).sum())
            if passed_s >= WARM_UP_S:
                made_ns = (int((batch.values[row] or b"0")[:19]) for row in live)
                waits[place.name] += [(now_ns - made) / 1e6 for made in made_ns]
    ended.set()
    sender.join()
    consumer.close()
    return waits, backlog


def run(backlog: int, seconds: float, rounds: int, *, slow_broker: bool = False) -> dict[str, object]:
    places = TWO if slow_broker else ONE
    ways: dict[str, Callable[[str, str], StreamConsumer]] = {
        "together": KafkaConsumer,
        "apart": lambda bootstrap, topic: CatchUpConsumer(
            lambda: KafkaConsumer(bootstrap, topic), CatchUpBounds()
        ),
    }
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    with _servers(places) as bootstrap:
        for number in range(rounds):
            for way, open_consumer in ways.items():
                topic = f"{way}_{number}"
                _create(bootstrap, topic, places)
                _fill(bootstrap, topic, places, backlog)
                waits, read = waits_ms(bootstrap, open_consumer(bootstrap, topic), places, seconds)
                figures = {"backlog_read": float(read)}
                for place, waited in waits.items():
                    p50, p99 = np.percentile(waited, [50, 99]) if waited else (np.inf, np.inf)
                    figures |= {f"{place}_p50_ms": float(p50), f"{place}_p99_ms": float(p99)}
                found[way].append(figures)
    medians = {
        way: {name: statistics.median(each[name] for each in rounds_) for name in rounds_[0]}
        for way, rounds_ in found.items()
    }
    return {
        **medians,
        "backlog": backlog,
        "live_per_s": LIVE_PER_S,
        "work_us": WORK_S * 1e6,
        "slow_broker": slow_broker,
        "ratio": medians["apart"]["well_p99_ms"] / medians["together"]["well_p99_ms"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--slow-broker", action="store_true", help="two brokers, one of them slow")
    parser.add_argument("--backlog", type=int, default=400_000)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--behind", type=int, default=0, help="events that a whole receiver is behind")
    parser.add_argument("--pages", type=int, default=PAGES, help="values of one dimension of these")
    parser.add_argument("--settle-s", type=float, default=5.0, help="its memory is watched after reading")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result: dict[str, object]
    if arguments.behind:
        result = {**far_behind.run(arguments.behind, arguments.pages, arguments.settle_s)}
    else:
        result = run(
            arguments.backlog, arguments.seconds, arguments.rounds, slow_broker=arguments.slow_broker
        )
    if arguments.json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            print(f"{key:14} {value}")


if __name__ == "__main__":
    main()
