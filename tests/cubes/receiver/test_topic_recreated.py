"""A topic that is deleted and recreated under its name: a receiver stores nothing of it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rtolap.base.errors import NotFound, Unavailable
from rtolap.cubes.receiver.answers.query_service import answer
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.core.topic_watch import LOG_END_EVERY_S
from rtolap.cubes.receiver.local.align import VersionedRange
from rtolap.cubes.receiver.local.checkpoint import NAME
from rtolap.cubes.receiver.local.realign import RangeReader
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.interfaces import BATCH_BYTES_MAX, Batch, OutRecord, TopicRecreated
from rtolap.metadata.records import CubeControl
from rtolap.protocols.receiver.messages import HistorySnapshot, PartialQuery

from tests.support.cubes.builders import START_MS, small_schema
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryProducer

CONTROL = CubeControl(enabled=True, assignment={"rs": (0,)}, assignment_epoch=1, first_offsets={0: 0})


class SlowToNotice(MemoryConsumer):
    """Its topic's end shows as silence for a while, as with librdkafka."""

    def poll(self, records_max: int, timeout_s: float, *, bytes_max: int = BATCH_BYTES_MAX) -> Batch:
        try:
            return super().poll(records_max, timeout_s, bytes_max=bytes_max)
        except NotFound:
            none = np.array([], np.int64)
            return Batch([], none.astype(np.int32), none)


class Bench:
    noticing = True

    def __init__(self, folder: Path) -> None:
        self.schema, self.folder, self.clock = small_schema(), folder, ManualClock(START_MS)
        self.broker = MemoryBroker()
        self.broker.create("sales", 1)
        self.broker.create("sales.dead-letters", 1)
        self.view = CubeView(control=CONTROL, start_offsets={0: 0}, leading=True)
        self.core = self.started()

    def started(self) -> CubeReceiver:
        self.core = CubeReceiver(
            self.schema,
            replica_set="rs",
            consumer=self.consumer(),
            producer=MemoryProducer(self.broker),
            folder=self.folder,
            clock=self.clock,
            settings=ReceiverSettings(disk_free_bytes_min=0),
        )
        return self.core

    def consumer(self) -> MemoryConsumer:
        return (MemoryConsumer if self.noticing else SlowToNotice)(self.broker, "sales")

    def send(self, count: int) -> None:
        body = json.dumps({"ts": START_MS, "kind": "a", "place": 1, "amount": 1}).encode()
        for _ in range(count):
            self.broker.append("sales", OutRecord(body, partition=0))

    def step(self, control: CubeControl = CONTROL) -> None:
        view = CubeView(control=control, start_offsets={0: 0}, leading=True)
        while self.core.step(view):
            pass

    def recreate(self, count: int) -> None:
        self.broker.delete("sales")
        self.broker.create("sales", 1)
        self.send(count)

    def saved(self) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.folder / NAME).read_text())
        return found

    def rows(self) -> int:
        wanted = PartialQuery("sales_by_kind", (), ("__rows",), HistorySnapshot())
        core = self.core
        table = answer(
            self.schema, core.state, wanted, owned=core.owned, receiver_id="r", progress=core.progress
        )
        return sum(table.column("__rows").to_pylist())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """It has read and saved three events; the new topic is longer than that."""
    bench = Bench(tmp_path)
    bench.send(3)
    bench.step()
    bench.core.checkpoint()
    return bench


def assert_failed(bench: Bench) -> None:
    assert bench.core.consumer_state is ConsumerState.FAILED
    assert bench.core.reason.startswith("topic_recreated: ")
    assert "rtolap drop" in bench.core.reason


def test_a_checkpoint_says_in_which_topic_its_offsets_count(bench: Bench) -> None:
    assert bench.saved()["topic_id"] == "id-1"


def test_a_receiver_that_reads_on_notices_it_with_its_next_look_at_the_log_ends(bench: Bench) -> None:
    bench.recreate(10)
    bench.clock.advance_ms(int(LOG_END_EVERY_S * 1000) + 1)
    bench.step()
    bench.step()
    assert_failed(bench)


def test_nothing_of_the_new_topic_reaches_a_checkpoint(bench: Bench) -> None:
    bench.recreate(10)
    bench.step()  # it has read on, and not been told yet
    assert bench.core.state.positions == {0: 10}
    with pytest.raises(TopicRecreated):
        bench.core.checkpoint()
    assert bench.saved()["positions"] == {"0": 3}
    bench.step()
    assert_failed(bench)


def test_nothing_is_closed_by_offsets_of_the_new_topic(bench: Bench) -> None:
    bench.recreate(10)
    bench.step()
    bench.core.force.add(START_MS)
    assert bench.core.closings() == ()
    bench.step()
    assert_failed(bench)


def test_a_segment_is_still_closed_by_offsets_of_the_topic_that_is_known(bench: Bench) -> None:
    bench.core.force.add(START_MS)
    assert [one.vector for one in bench.core.closings()] == [{0: 3}]


def test_a_receiver_that_starts_compares_its_checkpoint_and_still_answers_for_that(bench: Bench) -> None:
    bench.recreate(10)
    bench.started()
    bench.step()
    assert_failed(bench)
    assert bench.rows() == 3
    bench.core.restart()
    bench.step()
    assert_failed(bench)


def test_a_receiver_without_a_checkpoint_goes_by_the_cube(bench: Bench, tmp_path: Path) -> None:
    bench.recreate(10)
    bench.folder = tmp_path / "fresh"
    bench.started()
    bench.step(msgspec.structs.replace(CONTROL, topic_id="id-1"))
    assert_failed(bench)


def test_a_checkpoint_of_an_older_version_adopts_the_topic_that_is_there(bench: Bench) -> None:
    saved = bench.saved()
    del saved["topic_id"]
    (bench.folder / NAME).write_text(json.dumps(saved))
    bench.started()
    bench.send(2)
    bench.step()
    bench.core.checkpoint()
    assert (bench.rows(), bench.saved()["topic_id"]) == (5, "id-1")


def test_an_offset_beyond_the_new_log_is_named_by_its_cause(bench: Bench) -> None:
    bench.recreate(1)
    bench.step()
    assert_failed(bench)


def test_a_topic_that_was_missing_and_is_another_one_is_named(bench: Bench) -> None:
    bench.broker.delete("sales")
    bench.step()
    assert "there is no topic" in bench.core.reason
    bench.broker.create("sales", 1)
    bench.send(10)
    bench.clock.advance_ms(int(LOG_END_EVERY_S * 1000) + 1)
    bench.step()
    assert_failed(bench)
    assert bench.rows() == 3


def test_a_topic_that_a_due_checkpoint_misses_fails_the_receiver(bench: Bench) -> None:
    bench.noticing = False
    bench.started()
    bench.send(1)
    bench.step()
    bench.send(1)
    bench.step()  # it has just asked for the topic: what this step reads is confirmed by nobody yet
    bench.broker.delete("sales")
    bench.clock.advance_ms(int(ReceiverSettings().checkpoint_interval_s * 1000) + 1)
    bench.step()
    assert bench.core.consumer_state is ConsumerState.FAILED
    assert "there is no topic sales" in bench.core.reason
    assert bench.rows() == 5


def test_a_topic_that_a_broker_did_not_know_for_a_while_is_read_on(bench: Bench) -> None:
    topics = bench.broker._topics
    logs = topics.pop("sales")
    bench.step()
    assert bench.core.consumer_state is ConsumerState.FAILED
    topics["sales"] = logs
    bench.send(2)
    bench.clock.advance_ms(int(LOG_END_EVERY_S * 1000) + 1)
    bench.step()
    bench.step()
    assert bench.core.consumer_state in (ConsumerState.REPLAYING, ConsumerState.CONSUMING)
    assert bench.rows() == 5


def test_nothing_is_stored_while_nobody_says_which_topic_it_is(bench: Bench) -> None:
    bench.send(2)
    bench.step()
    bench.broker.set_down(True)
    with pytest.raises(Unavailable):
        bench.core.checkpoint()
    bench.broker.set_down(False)
    bench.core.checkpoint()
    assert bench.saved()["positions"] == {"0": 5}


def test_a_range_is_not_read_again_from_the_new_topic(bench: Bench) -> None:
    bench.recreate(10)
    reader = RangeReader(bench.schema, bench.consumer, bench.clock, 100, bench.core.confirm_topic)
    with pytest.raises(TopicRecreated):
        reader.read(START_MS, [VersionedRange(0, 0, 3, 1)])
