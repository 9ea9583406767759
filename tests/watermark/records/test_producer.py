"""A producer that states its application's watermark, on the broker's deterministic twin."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from rtolap.base.errors import DefinitionError, NotFound, Refused, RtolapError, Unavailable
from rtolap.kafka.interfaces import WATERMARK_HEADER, Delivered, OutRecord
from rtolap.watermark.records.producer import WatermarkedProducer
from rtolap.watermark.records.statement import decode

from tests.support.cubes.stream_contract import StreamContract, World
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryAdmin, MemoryProducer
from tests.support.waiting import until

TOPIC = "results"


class Mark:
    ms: int | None = None

    def __call__(self) -> int | None:
        return self.ms


class Withholding(MemoryProducer):
    """Queues as Kafka's does: what is produced is acknowledged when it is polled or flushed."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.queued: list[Callable[[], None]] = []
        self.full_after: int | None = None

    def produce(
        self,
        topic: str,
        records: Sequence[OutRecord],
        *,
        delivered: Delivered | None = None,
    ) -> None:
        for record in records:
            if self.full_after is not None and len(self.queued) >= self.full_after:
                raise Unavailable("the producer's queue stayed full")
            self.queued.append(partial(self._send, topic, record, delivered))

    def _send(self, topic: str, record: OutRecord, delivered: Delivered | None) -> None:
        super().produce(topic, [record], delivered=delivered)

    def land(self, count: int) -> None:
        landing, self.queued = self.queued[:count], self.queued[count:]
        for send in landing:
            send()

    def flush(self, timeout_s: float) -> None:
        self.land(len(self.queued))
        super().flush(timeout_s)


@pytest.fixture
def broker() -> MemoryBroker:
    broker = MemoryBroker()
    broker.create(TOPIC, 3)
    return broker


@pytest.fixture
def mark() -> Mark:
    return Mark()


def producer(
    broker: MemoryBroker,
    mark: Mark,
    *,
    generation: int = 1,
    field: str | None = None,
    every_s: float | None = None,
    inner: MemoryProducer | None = None,
) -> WatermarkedProducer:
    return WatermarkedProducer(
        inner or MemoryProducer(broker),
        MemoryAdmin(broker),
        TOPIC,
        name="store-0",
        generation=generation,
        watermark_ms=mark,
        field=field,
        every_s=every_s,
    )


def log(broker: MemoryBroker, partition: int) -> list[tuple[bytes | None, str, int | None]]:
    """Return (value, kind, watermark) of each record."""
    found = []
    for record in broker.logs(TOPIC)[partition].records:
        one = decode(record.headers[WATERMARK_HEADER])
        found.append((record.value, str(one.kind), one.watermark_ms))
    return found


def test_every_record_states_the_watermark_of_its_moment(broker: MemoryBroker, mark: Mark) -> None:
    out = producer(broker, mark)
    out.produce(TOPIC, [OutRecord(b"a", partition=0)])
    mark.ms = 50
    out.produce(TOPIC, [OutRecord(b"b", partition=0), OutRecord(b"c", partition=1)])
    mark.ms = None  # a client that has just started over does not take back what was said
    out.produce(TOPIC, [OutRecord(b"d", partition=0)])
    assert log(broker, 0) == [(b"a", "data", None), (b"b", "data", 50), (b"d", "data", 50)]
    assert log(broker, 1) == [(b"c", "data", 50)]


def test_control_records_go_to_every_partition_also_to_new_ones(broker: MemoryBroker, mark: Mark) -> None:
    mark.ms = 50
    out = producer(broker, mark)
    out.state_watermark()
    MemoryAdmin(broker).add_partitions(TOPIC, 4)
    mark.ms = 60
    out.state_watermark()
    assert log(broker, 0) == log(broker, 2) == [(None, "control", 50), (None, "control", 60)]
    assert log(broker, 3) == [(None, "control", 60)]


def test_a_thread_states_it_again_and_again_until_the_end(broker: MemoryBroker, mark: Mark) -> None:
    mark.ms = 50
    out = producer(broker, mark, every_s=0.01)
    until(lambda: len(log(broker, 2)) >= 3)
    mark.ms = 70
    out.close()
    ends = log(broker, 2)
    assert ends[-1] == (None, "end", 70)
    assert [kind for _, kind, _ in ends].count("end") == 1
    with pytest.raises(Refused, match="has stated its end"):
        out.produce(TOPIC, [OutRecord(b"late")])
    assert log(broker, 2) == ends
    assert not any(thread.name == "watermarks-of-store-0" for thread in threading.enumerate())


def test_an_outage_is_a_visible_problem_and_then_over(broker: MemoryBroker, mark: Mark) -> None:
    out = producer(broker, mark, every_s=0.01)
    broker.set_down(True)
    until(lambda: out.problem is not None)
    assert "does not answer" in out.problem
    broker.set_down(False)
    until(lambda: out.problem is None and log(broker, 1))
    out.close()


def test_at_most_one_control_record_a_partition_waits(broker: MemoryBroker, mark: Mark) -> None:
    inner = Withholding(broker)
    out = producer(broker, mark, inner=inner)
    for _ in range(5):
        out.state_watermark()
    assert len(inner.queued) == 3
    assert "has not acknowledged" in (out.problem or "")
    inner.land(1)
    out.state_watermark()
    assert len(inner.queued) == 3, "one for the partition that has acknowledged"
    inner.land(3)
    out.state_watermark()
    assert out.problem is None


def test_what_is_not_in_the_log_yet_is_known_by_its_oldest(broker: MemoryBroker, mark: Mark) -> None:
    inner = Withholding(broker)
    out = producer(broker, mark, inner=inner)
    a, b, c = (OutRecord(name, partition=0) for name in (b"a", b"b", b"c"))
    told: list[tuple[OutRecord, RtolapError | None]] = []
    assert out.oldest_unacknowledged_ms() is None
    out.produce(TOPIC, [a, b], event_ms=[30, 20], delivered=lambda *one: told.append(one))
    out.produce(TOPIC, [c], event_ms=[40])
    assert out.oldest_unacknowledged_ms() == 20
    inner.land(1)
    assert out.oldest_unacknowledged_ms() == 20
    inner.land(1)
    assert told == [(a, None), (b, None)], "the caller's own records"
    assert out.oldest_unacknowledged_ms() == 40
    out.flush(1)
    assert out.oldest_unacknowledged_ms() is None


def test_what_cannot_be_queued_is_not_waited_for(broker: MemoryBroker, mark: Mark) -> None:
    inner = Withholding(broker)
    out = producer(broker, mark, inner=inner)
    inner.full_after = 1
    with pytest.raises(Unavailable):
        out.produce(TOPIC, [OutRecord(b"a"), OutRecord(b"b"), OutRecord(b"c")], event_ms=[30, 20, 10])
    assert out.oldest_unacknowledged_ms() == 10
    inner.land(1)
    assert out.oldest_unacknowledged_ms() is None


def test_what_a_partition_states_never_falls_whoever_produces(broker: MemoryBroker, mark: Mark) -> None:
    mark.ms = 0
    out = producer(broker, mark)

    def produce() -> None:
        for _ in range(300):
            mark.ms = (mark.ms or 0) + 1
            out.produce(TOPIC, [OutRecord(b"x", partition=0)])

    threads = [threading.Thread(target=produce) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        out.state_watermark()
    for thread in threads:
        thread.join()
    found = [watermark_ms or 0 for _, _, watermark_ms in log(broker, 0)]
    assert len(found) == 1000
    assert found == sorted(found)


def test_records_behind_the_own_watermark_are_counted(broker: MemoryBroker, mark: Mark) -> None:
    out = producer(broker, mark)
    out.produce(TOPIC, [OutRecord(b"a")], event_ms=[1])
    mark.ms = 50
    out.produce(TOPIC, [OutRecord(b"a"), OutRecord(b"b"), OutRecord(b"c")], event_ms=[49, 50, 51])
    assert out.late_records == 1


def test_a_field_of_the_value_instead_of_a_header(broker: MemoryBroker, mark: Mark) -> None:
    mark.ms = 50
    out = producer(broker, mark, field="wm")
    out.produce(TOPIC, [OutRecord(b'{"a":1}', partition=0)])
    out.state_watermark()
    with pytest.raises(Refused):
        out.produce(TOPIC, [OutRecord(b'{"a":2}', partition=0), OutRecord(None, partition=0)])
    records = broker.logs(TOPIC)[0].records
    assert [json.loads(record.value or b"") for record in records] == [
        {"a": 1, "wm": "1 data 1 50 store-0"},
        {"wm": "1 control 1 50 store-0"},
    ]
    assert not any(record.headers for record in records)


def test_wrong_use_is_told(broker: MemoryBroker, mark: Mark) -> None:
    out = producer(broker, mark)
    with pytest.raises(DefinitionError, match="one topic"):
        out.produce("another", [OutRecord(b"a")])
    with pytest.raises(DefinitionError, match="one event time per record"):
        out.produce(TOPIC, [OutRecord(b"a")], event_ms=[1, 2])
    broker.delete(TOPIC)
    with pytest.raises(NotFound):
        out.state_watermark()


def test_a_record_that_the_broker_refuses_is_raised_by_flush(broker: MemoryBroker, mark: Mark) -> None:
    broker.configure(TOPIC, max_message_bytes="10")
    out = producer(broker, mark)
    out.produce(TOPIC, [OutRecord(b"x" * 20)], event_ms=[5])
    assert out.oldest_unacknowledged_ms() is None
    with pytest.raises(Refused):
        out.flush(1)
    out.flush(1)


class TestWatermarkedProducer(StreamContract):
    """It is a producer like any other."""

    @pytest.fixture
    def world(self) -> World:
        broker = MemoryBroker()
        mark = Mark()
        mark.ms = 50
        out = WatermarkedProducer(
            MemoryProducer(broker),
            MemoryAdmin(broker),
            "events",
            name="store-0",
            generation=1,
            watermark_ms=mark,
            every_s=None,
        )
        return World(
            topic="events",
            admin=MemoryAdmin(broker),
            producer=out,
            consumer=lambda topic: MemoryConsumer(broker, topic),
            gap=lambda topic, partition: broker.skip(topic, partition, 3),
        )
