"""A real Kafka of the benchmark's own, in a folder that goes with it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rtolap.stack.artifacts import java_artifacts
from rtolap.stack.kafka import kafka_spec
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess


@contextmanager
def kafka() -> Iterator[str]:
    """Yields the bootstrap address."""
    folder = Path(tempfile.mkdtemp(prefix="rtolap-bench-"))
    port = free_port()
    server = ManagedProcess(kafka_spec(java_artifacts(), folder / "kafka", port, free_port({port})))
    try:
        server.start()
        yield server.address
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def fill(bootstrap: str, topic: str, values: Sequence[bytes], *, partitions: int, times: int = 1) -> int:
    """Create the topic and send `values`, `times` over, spread evenly. Returns the number of records."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])[topic].result(30)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": 1_000_000,
            "compression.type": "lz4",
        }
    )
    for _ in range(times):
        for index, value in enumerate(values):
            while True:
                try:
                    producer.produce(topic, value, partition=index % partitions)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.flush()
    return len(values) * times
