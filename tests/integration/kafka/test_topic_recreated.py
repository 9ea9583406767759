"""A real topic that is deleted, recreated and filled beyond the offsets that were read of the old one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import NotFound, RtolapError
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.local.checkpoint import NAME
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaAdmin, KafkaProducer
from rtolap.metadata.records import CubeControl
from rtolap.model.loader import Loader, LoaderBatch
from rtolap.protocols.stream_load.messages import TableSchema
from rtolap.stored.loader.job import JobConfig, JobResources, write_config
from rtolap.stored.loader.job_run import begin
from rtolap.stored.loader.states import StopCause, Stopped
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.load_jobs import LoadJobEvent, LoadJobs
from rtolap.stored.metastore.offsets import OffsetsRecords

from tests.support.cubes.builders import START_MS, small_schema
from tests.support.loader.stepped_loader import COLUMNS, Box
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_producer import MemoryProducer
from tests.support.twins.loader_sink import MemorySink
from tests.support.waiting import patience_s

DEADLINE_S = 60.0


def until(condition: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + patience_s(DEADLINE_S)
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {DEADLINE_S:.0f} s for {what}"


class Topic:
    def __init__(self, kafka: str, name: str) -> None:
        self.name, self.admin, self.producer = name, KafkaAdmin(kafka), KafkaProducer(kafka)
        self.admin.create_topic(name, 1)

    def fill(self, values: list[bytes]) -> None:
        self.producer.produce(self.name, [OutRecord(value, partition=0) for value in values])
        self.producer.flush(DEADLINE_S)

    def id(self) -> str | None:
        try:
            return self.admin.topic_id(self.name)
        except NotFound:
            return None

    def recreate(self, values: list[bytes]) -> None:
        self.admin.delete_topic(self.name)
        until(lambda: self.id() is None, "the end of the topic")
        until(lambda: self.admin.create_topic(self.name, 1), "a new topic")
        until(lambda: self.id() is not None, "the new topic")
        self.fill(values)


@pytest.fixture
def topic(kafka: str, unique_name: str) -> Topic:
    return Topic(kafka, unique_name)


def test_a_loader_stops_before_it_records_anything_of_the_new_topic(
    topic: Topic, kafka: str, tmp_path: Path
) -> None:
    topic.fill([b'{"k": %d}' % key for key in range(30)])
    ledger = Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}")
    jobs, records, sink = LoadJobs(ledger), OffsetsRecords(ledger), MemorySink()
    sink.tables["d", "t"] = TableSchema(properties=COLUMNS)
    loader = Loader(name="j", topic=topic.name, database="d", table="t", batch=LoaderBatch(rows=10))
    jobs.create("j", "d", "t", topic.name, write_config(JobConfig(loader)))
    jobs.change_state("j", LoadJobEvent.START, "")
    opened: list[KafkaConsumer] = []

    def consumer(it: Loader) -> KafkaConsumer:
        opened.append(KafkaConsumer(kafka, it.topic))
        return opened[-1]

    work = begin("j", "p", JobResources(jobs, records, sink, consumer, Box(), SystemClock()))
    settler = work.settler()

    def load() -> bool:
        work.ownership.renew()
        work.source.step(0.2)
        work.settle_once(settler)
        return len(sink.rows("d", "t")) >= 30

    until(load, "the first topic to be loaded")
    topic.recreate([b'{"k": %d}' % key for key in range(1000, 1100)])

    causes: list[StopCause] = []

    def stopped() -> bool:
        try:
            load()
        except Stopped as stop:
            causes.append(stop.cause)
        except RtolapError:
            return False  # a broker that is busy with the topic
        return bool(causes)

    until(stopped, "the loader to stop")
    assert causes[0] in (StopCause.TOPIC_RECREATED, StopCause.TOPIC_GONE)
    assert sorted(row["k"] for row in sink.rows("d", "t")) == list(range(30))
    assert records.all("j")[-1].end_offsets == {0: 30}
    log = work.log()
    assert log is not None
    assert log.topic_id == topic.id() != records.all("j")[-1].topic_id
    work.source.close()
    ledger.close()


def test_a_receiver_stores_nothing_of_the_new_topic(topic: Topic, kafka: str, tmp_path: Path) -> None:
    body = json.dumps({"ts": START_MS, "kind": "a", "place": 1, "amount": 1}).encode()
    topic.fill([body] * 30)
    dead_letters = MemoryBroker()
    core = CubeReceiver(
        small_schema(),
        replica_set="rs",
        consumer=KafkaConsumer(kafka, topic.name),
        producer=MemoryProducer(dead_letters),
        folder=tmp_path,
        clock=SystemClock(),
        settings=ReceiverSettings(disk_free_bytes_min=0),
    )
    control = CubeControl(enabled=True, assignment={"rs": (0,)}, assignment_epoch=1, first_offsets={0: 0})
    view = CubeView(control=control, start_offsets={0: 0})

    def step() -> None:
        try:
            core.step(view, 0.2)
        except RtolapError:
            return  # a broker that is busy with the topic

    def read() -> bool:
        step()
        return core.state.positions == {0: 30}

    until(read, "the first topic to be read")
    core.checkpoint()
    topic.recreate([body] * 100)

    def failed() -> bool:
        step()
        return core.consumer_state is ConsumerState.FAILED and core.reason.startswith("topic_recreated")

    until(failed, "the receiver to notice")
    with pytest.raises(RtolapError):
        core.checkpoint()
    assert json.loads((tmp_path / NAME).read_text())["positions"] == {"0": 30}
    core.close()
