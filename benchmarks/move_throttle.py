"""Measure how long a partition takes to move under a throttle near the rate at which it is written.

    python -m benchmarks.move_throttle [--seconds 40] [--json]

Three real brokers. Eight partitions of two replicas, all led by one broker, are written at the same even
rate; one of them moves, under throttles of one to four times that rate. What a leader sends to replicas in
sync counts against its throttle: where the moved partition alone is listed, the copy has what the throttle
leaves over twice the rate; where all are listed, over nine times. Brokers average over two seconds here
instead of ten, so that a run is short: so much of a copy goes unbound at first.

`seconds`: until Kafka has moved it, null where it has not after `--seconds`; `lacking_mb`: of the copy, then.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic
from rtolap.fleet.moves.planned import PlannedMove
from rtolap.fleet.moves.throttles import plan_throttle, remove_throttle, set_throttle
from rtolap.kafka.administration.client import KafkaAdministration
from rtolap.kafka.administration.values import Partition
from rtolap.stack.artifacts import java_artifacts

from tests.support.fleet.brokers import Brokers
from tests.support.kafka_topics import create_topic

PARTITIONS = 8
WRITTEN_BYTES_PER_S = 200_000  # to each of them
SIZE_BYTES = 6_000_000
RECORD_BYTES = 2_000
BEFORE, AFTER = (1, 2), (1, 3)
RUNS = ((1, "moved"), (2, "moved"), (3, "moved"), (4, "moved"), (4, "all"))
_TICK_S, _LOOK_S = 0.02, 0.1


def moves_of(topic: str) -> list[PlannedMove]:
    return [
        PlannedMove(topic, number, BEFORE, AFTER, ("", ""), ("", ""), SIZE_BYTES)
        for number in range(PARTITIONS)
    ]


@contextmanager
def written(servers: str, topic: str) -> Iterator[None]:
    """Write at an even rate, in a thread."""
    ended = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 5})
        started_s, sent = time.monotonic(), 0
        while not ended.wait(_TICK_S):
            due = int((time.monotonic() - started_s) * WRITTEN_BYTES_PER_S / RECORD_BYTES)
            for _ in range(due - sent):
                for number in range(PARTITIONS):
                    producer.produce(topic, b"x" * RECORD_BYTES, partition=number)
            sent = max(sent, due)
            producer.poll(0)
        producer.flush(30)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)


def fill(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for _ in range(SIZE_BYTES // RECORD_BYTES):
        producer.produce(topic, b"x" * RECORD_BYTES, partition=0)
        producer.poll(0)
    producer.flush(60)


def moved_under(
    brokers: Brokers, administration: KafkaAdministration, times: int, listed: str, seconds: float
) -> dict[str, Any]:
    servers, topic = brokers.cluster.servers, f"moved_{listed}_{times}"
    create_topic(servers, NewTopic(topic, PARTITIONS, replica_assignment=[list(BEFORE)] * PARTITIONS))
    fill(servers, topic)
    partition, moves = Partition(topic, 0), moves_of(topic)
    numbers = (0,) if listed == "moved" else tuple(range(PARTITIONS))
    throttle = plan_throttle(administration, moves, times * WRITTEN_BYTES_PER_S)
    throttle = set_throttle(administration, moves, throttle, numbers)
    try:
        with written(servers, topic):
            started_s = time.monotonic()
            refused = administration.reassign({partition: AFTER})
            if refused:
                raise refused[partition]
            taken_s: float | None = None
            while taken_s is None and time.monotonic() - started_s < seconds:
                time.sleep(_LOOK_S)
                if not administration.running_reassignments([partition]):
                    taken_s = time.monotonic() - started_s
            lacking = 0 if taken_s is not None else lacking_bytes(administration, partition)
    finally:
        remove_throttle(administration, moves, throttle)
    while administration.running_reassignments([partition]):
        time.sleep(_LOOK_S)
    return {
        "throttle_to_written": times,
        "listed": listed,
        "seconds": None if taken_s is None else round(taken_s, 1),
        "lacking_mb": round(lacking / 1e6, 2),
    }


def lacking_bytes(administration: KafkaAdministration, partition: Partition) -> int:
    """Return what the copy lacks of the leader's replica."""
    log_dirs = administration.describe_log_dirs([BEFORE[0], AFTER[-1]], [partition])
    sizes = {
        broker: sum(replica.size_bytes for log_dir in of_broker.log_dirs for replica in log_dir.replicas)
        for broker, of_broker in log_dirs.items()
    }
    return max(0, sizes[BEFORE[0]] - sizes[AFTER[-1]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    overrides = {"replication.quota.window.num": 3}
    figures = []
    with (
        tempfile.TemporaryDirectory(prefix="rtolap-throttle-") as folder,
        Brokers(Path(folder), java_artifacts(), overrides=overrides) as brokers,
    ):
        administration = KafkaAdministration(brokers.cluster)
        for times, listed in RUNS:
            found = moved_under(brokers, administration, times, listed, arguments.seconds)
            figures.append(found)
            duration = "no end" if found["seconds"] is None else f"{found['seconds']:.1f} s"
            print(
                f"throttle {times} x what is written, {listed:5} listed: {duration},"
                f" {found['lacking_mb']:.2f} MB lacking",
                flush=True,
            )
        administration.close()
    if arguments.json:
        print(json.dumps({"written_bytes_per_s": WRITTEN_BYTES_PER_S, "runs": figures}))


if __name__ == "__main__":
    main()
