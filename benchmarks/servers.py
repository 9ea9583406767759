"""Real servers of the benchmark's own, in folders that go with them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rtolap.stack.artifacts import find_java, hbase_jars, java_artifacts
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.servers.hbase import hbase_spec
from rtolap.stack.servers.kafka import kafka_spec
from rtolap.stack.servers.zookeeper import zookeeper_spec
from rtolap.stack.spec import ProcessSpec


@contextmanager
def kafka() -> Iterator[str]:
    """Yield the bootstrap address."""
    port = free_port()
    with _running(lambda folder: kafka_spec(java_artifacts(), folder, port, free_port({port}))) as address:
        yield address


@contextmanager
def zookeeper() -> Iterator[str]:
    """Yield host:port."""
    with _running(lambda folder: zookeeper_spec(java_artifacts(), folder, free_port())) as address:
        yield address


@contextmanager
def hbase() -> Iterator[str]:
    """Yield the address of its ZooKeeper. Two region servers run in one process."""
    ports: list[int] = []
    while len(ports) < 3:
        ports.append(free_port(ports))
    master, zookeeper, info = ports
    with _running(
        lambda folder: hbase_spec(find_java(), hbase_jars(), folder, master, zookeeper, info_port=info)
    ) as address:
        yield address


@contextmanager
def _running(spec: Callable[[Path], ProcessSpec]) -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="rtolap-bench-"))
    server = ManagedProcess(spec(folder / "server"))
    try:
        server.start()
        yield server.address
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])[topic].result(30)


def fill(
    bootstrap: str,
    topic: str,
    values: Sequence[bytes],
    *,
    partitions: int,
    times: int = 1,
    create: bool = True,
) -> int:
    """Create the topic and send `values`, `times` over, spread evenly. Returns the number of records."""
    if create:
        create_topic(bootstrap, topic, partitions)
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
