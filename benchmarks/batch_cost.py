"""The cost of one batch for the receiver's core, by its size: processor time from poll to the swapped state.

    python -m benchmarks.batch_cost [--batches 200] [--json]

The smallest size shows the fixed cost. Over Kafka in memory: no broker, no network.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from rtolap.base.clock import SystemClock
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.interfaces import OutRecord
from rtolap.metadata.records import CubeControl

from benchmarks import events
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryProducer

TOPIC = "bench"
SIZES = (1, 10, 100, 1_000, 10_000)
WARM_UP = 20
EVENTS_MAX = 300_000


def ms_a_batch(values: list[bytes], size: int, batches: int) -> float:
    """Return the mean ms over the batches, after some that warm up."""
    broker = MemoryBroker()
    broker.create(TOPIC, 1)
    for value in values[: size * (batches + WARM_UP)]:
        broker.append(TOPIC, OutRecord(value, partition=0, timestamp_ms=events.START_MS))
    view = CubeView(
        control=CubeControl(enabled=True, assignment={"rs": (0,)}, assignment_epoch=1), start_offsets={0: 0}
    )
    with tempfile.TemporaryDirectory() as folder:
        core = CubeReceiver(
            events.schema(TOPIC),
            replica_set="rs",
            consumer=MemoryConsumer(broker, TOPIC, with_create_ms=True),
            producer=MemoryProducer(broker),
            folder=Path(folder),
            clock=SystemClock(),
            settings=ReceiverSettings(batch_records_max=size, disk_free_bytes_min=0),
        )
        for _ in range(WARM_UP):
            core.step(view)
        started_s, read = time.process_time(), 0
        while core.step(view):
            read += 1
        return (time.process_time() - started_s) / read * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    values = events.values(EVENTS_MAX, seed=1)
    figures: dict[int, float] = {}
    for size in SIZES:
        batches = min(arguments.batches, EVENTS_MAX // size - WARM_UP)
        figures[size] = ms_a_batch(values, size, batches)
        if not arguments.json:
            print(f"{size:7} events a batch {figures[size]:8.2f} ms", flush=True)
    if arguments.json:
        print(json.dumps({"ms_a_batch": figures}))


if __name__ == "__main__":
    main()
