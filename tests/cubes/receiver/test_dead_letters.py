"""Refused records that Kafka will not take: none is lost, and it is seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rtolap.base.errors import NotFound, Refused, Unavailable
from rtolap.cubes.receiver.core.dead_letters import PENDING_BYTES_MAX, DeadLetterWriter
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.cubes.receiver.views import CubeView
from rtolap.events.rejects import Rejects
from rtolap.kafka.interfaces import Batch, OutRecord
from rtolap.metadata.records import CubeControl

from tests.support.cubes.builders import START_MS, small_schema
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryAdmin, MemoryProducer

LETTERS = "sales.dead-letters"
RETRY_MS = 6_000
VIEW = CubeView(
    control=CubeControl(enabled=True, assignment={"rs": (0,)}, assignment_epoch=1, first_offsets={0: 0}),
    start_offsets={0: 0},
)
LARGE = b"[" + b"1," * 200


class Bench:
    def __init__(self, folder: Path) -> None:
        self.broker = MemoryBroker()
        self.admin = MemoryAdmin(self.broker)
        self.admin.create_topic("sales", 1)
        self.admin.create_topic(LETTERS, 1, config={"max.message.bytes": "100"})
        self.producer = MemoryProducer(self.broker)
        self.clock = ManualClock(START_MS)
        self.folder = folder
        self.core = self.restarted()

    def restarted(self) -> CubeReceiver:
        self.core = CubeReceiver(
            small_schema(),
            replica_set="rs",
            consumer=MemoryConsumer(self.broker, "sales"),
            producer=self.producer,
            folder=self.folder,
            clock=self.clock,
            settings=ReceiverSettings(disk_free_bytes_min=0, checkpoint_interval_s=1.0),
            create_dead_letter_topic=lambda: self.admin.create_topic(LETTERS, 1),
        )
        return self.core

    def send(self, *values: bytes) -> None:
        self.producer.produce("sales", [OutRecord(value, partition=0) for value in values])

    def step(self, after_ms: int = 0) -> None:
        self.clock.advance_ms(after_ms)
        while self.core.step(VIEW):
            pass
        self.core.step(VIEW)

    def stored_letters(self) -> dict[bytes | None, bytes | None]:
        """Key to value, as a compacted topic has them."""
        (log,) = self.broker.logs(LETTERS)
        return {record.key: record.value for record in log.records}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_letter_that_kafka_refuses_stops_the_consumer_until_it_is_kept(bench: Bench) -> None:
    bench.send(b"{", LARGE, b"[")
    bench.step()
    assert bench.core.consumer_state is ConsumerState.PAUSED
    assert "1 refused records cannot be kept in sales.dead-letters" in bench.core.reason
    assert "max.message.bytes" in bench.core.reason
    bench.send(b"{}")
    for _ in range(3):
        bench.step(RETRY_MS)
        assert bench.core.consumer_state is ConsumerState.PAUSED
        assert bench.core.checkpointed == {}, "no checkpoint passes it"
        with pytest.raises(Refused, match="cannot be kept"):
            bench.core.checkpoint()
    assert set(bench.stored_letters()) == {b"sales/0/0", b"sales/0/2"}, "the others are not held up by it"

    bench.broker.configure(LETTERS, max_message_bytes="1000")
    bench.step(RETRY_MS)
    assert bench.core.consumer_state is ConsumerState.CONSUMING
    bench.step(RETRY_MS)
    assert bench.core.checkpointed == {0: 4}
    assert bench.stored_letters() == {
        b"sales/0/0": b"{",
        b"sales/0/1": LARGE,
        b"sales/0/2": b"[",
        b"sales/0/3": b"{}",
    }
    assert sum(bench.core.progress.counters[0].rejected.values()) == 4


def test_after_a_crash_what_could_not_be_kept_is_read_and_refused_again(bench: Bench) -> None:
    bench.send(b"{", LARGE)
    bench.step()
    bench.restarted()
    bench.step()
    assert bench.core.consumer_state is ConsumerState.PAUSED
    bench.broker.configure(LETTERS, max_message_bytes="1000")
    bench.step(RETRY_MS)
    bench.step(RETRY_MS)
    assert bench.core.checkpointed == {0: 2}
    assert bench.stored_letters() == {b"sales/0/0": b"{", b"sales/0/1": LARGE}
    assert sum(bench.core.progress.counters[0].rejected.values()) == 2, "counted once"


def test_a_dead_letter_topic_that_was_deleted_is_made_again(bench: Bench) -> None:
    bench.admin.delete_topic(LETTERS)
    bench.send(b"{")
    bench.step()
    assert "no topic" in bench.core.reason
    bench.step(RETRY_MS)
    assert bench.core.consumer_state is ConsumerState.CONSUMING
    assert bench.stored_letters() == {b"sales/0/0": b"{"}


def test_a_producer_that_takes_nothing_is_no_loss_either(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.send(b"{")

    def full(*_: object, **__: object) -> None:
        raise Unavailable("the producer's queue stayed full")

    with monkeypatch.context() as patch:
        patch.setattr(bench.producer, "produce", full)
        bench.step()
        assert "stayed full" in bench.core.reason
    bench.step(RETRY_MS)
    assert bench.stored_letters() == {b"sales/0/0": b"{"}


class Silent(MemoryProducer):
    """Tells what has become of the records when the test says so."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.tell: list[Callable[[], None]] = []

    def produce(self, topic, records, *, delivered=None):  # type: ignore[no-untyped-def]
        assert delivered is not None
        self.tell += [lambda record=record: delivered(record, None) for record in records]

    def flush(self, timeout_s: float) -> None:
        raise Unavailable("not yet")


def _rejected(*values: bytes) -> tuple[Batch, Rejects]:
    count = len(values)
    places = np.arange(count, dtype=np.int64)
    batch = Batch(list(values), np.zeros(count, np.int32), places)
    return batch, Rejects(places, ["malformed_json"] * count, [""] * count)


def test_letters_on_their_way_hold_a_checkpoint_back_and_are_bounded() -> None:
    producer = Silent(MemoryBroker())
    box = DeadLetterWriter(producer, "sales", LETTERS)
    box.send(*_rejected(b"{"))
    assert box.delivery_error is None
    with pytest.raises(Unavailable, match="1 refused records wait"):
        box.settle(0.1)
    large = b"x" * (1 << 20)
    box.send(*_rejected(*[large] * (PENDING_BYTES_MAX // len(large) + 1)))
    assert isinstance(box.delivery_error, Unavailable), "the consumer waits for Kafka to take some"
    for tell in producer.tell:
        tell()
    assert box.delivery_error is None
    box.settle(0.1)


def test_one_letter_that_is_too_large_is_told_from_those_that_travel_with_it() -> None:
    """A broker refuses a whole batch for its size; each half is tried alone."""

    class Batched(MemoryProducer):
        def produce(self, topic, records, *, delivered=None):  # type: ignore[no-untyped-def]
            assert delivered is not None
            if sum(len(record.value or b"") for record in records) > 100:
                for record in records:
                    delivered(record, Refused("the batch is too large"))
            else:
                super().produce(topic, records, delivered=delivered)

    broker = MemoryBroker()
    broker.create(LETTERS, 1)
    box = DeadLetterWriter(Batched(broker), "sales", LETTERS)
    box.send(*_rejected(*[b"{" * 40] * 5, LARGE, *[b"[" * 40] * 5))
    with pytest.raises(Refused, match="1 refused records"):
        box.settle(60.0)
    (log,) = broker.logs(LETTERS)
    assert sorted(record.key or b"" for record in log.records) == sorted(
        b"sales/0/%d" % place for place in range(11) if place != 5
    )


def test_a_missing_topic_is_named() -> None:
    box = DeadLetterWriter(MemoryProducer(MemoryBroker()), "sales", LETTERS)
    box.send(*_rejected(b"{"))
    with pytest.raises(NotFound, match=LETTERS):
        box.settle(1.0)
