"""The contract of every implementation of the stream seam: subclass, give a `world` fixture, run with pytest.

Waits are on conditions with a deadline, because a real broker answers when it can.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from rtolap.base.errors import NotFound, Refused, RtolapError, TooLarge, Unavailable
from rtolap.kafka.interfaces import (
    Batch,
    OffsetsGone,
    OutRecord,
    StreamConsumer,
    StreamProducer,
    TopicAdmin,
)
from rtolap.model.leader_epochs import LeaderEpochs, continued

from tests.support.waiting import patience_s

DEADLINE_S = patience_s(30.0)


@dataclass
class World:
    """A broker. `topic` is an unused name; `gap` uses up offsets at a partition's end without a record."""

    topic: str
    admin: TopicAdmin
    producer: StreamProducer
    consumer: Callable[[str], StreamConsumer]
    gap: Callable[[str, int], None]

    def produce(self, partition: int, *values: bytes | None) -> None:
        self.producer.produce(self.topic, [OutRecord(value, partition=partition) for value in values])
        self.producer.flush(DEADLINE_S)


def read(consumer: StreamConsumer, count: int) -> dict[int, list[tuple[int, bytes | None]]]:
    """Read exactly `count` records, by partition: (offset, value)."""
    found: dict[int, list[tuple[int, bytes | None]]] = {}
    seen, deadline = 0, time.monotonic() + patience_s(DEADLINE_S)
    while seen < count and time.monotonic() < deadline:
        batch = consumer.poll(1000, 0.2)
        seen += len(batch)
        for partition, offset, value in zip(batch.partitions, batch.offsets, batch.values, strict=True):
            found.setdefault(int(partition), []).append((int(offset), value))
    assert seen == count, f"expected {count} records, found {seen}"
    return found


def poll_for(consumer: StreamConsumer, records_max: int, count: int) -> list[Batch]:
    """Poll batches until there are at least `count` records."""
    batches: list[Batch] = []
    deadline = time.monotonic() + patience_s(DEADLINE_S)
    while sum(map(len, batches)) < count:
        assert time.monotonic() < deadline, f"waited {DEADLINE_S:.0f} s for {count} records"
        batches.append(consumer.poll(records_max, 0.2))
    return batches


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + patience_s(DEADLINE_S)
    while not condition():
        assert time.monotonic() < deadline, f"waited {DEADLINE_S:.0f} s for {what}"


def poll_until_raises(consumer: StreamConsumer, kind: type[Exception]) -> Exception:
    deadline = time.monotonic() + patience_s(DEADLINE_S)
    while time.monotonic() < deadline:
        try:
            consumer.poll(100, 0.2)
        except kind as error:
            return error
    raise AssertionError(f"no {kind.__name__} within {DEADLINE_S:.0f} s")


def _topic_id(consumer: StreamConsumer) -> str | None:
    try:
        return consumer.topic_id()
    except NotFound:
        return None


class StreamContract:
    def test_reads_each_partition_in_order_from_the_given_offsets(self, world: World) -> None:
        world.admin.create_topic(world.topic, 2)
        world.produce(0, b"a", b"b", b"c")
        world.produce(1, b"x", None)
        consumer = world.consumer(world.topic)
        consumer.assign({0: 1, 1: 0})
        assert read(consumer, 4) == {0: [(1, b"b"), (2, b"c")], 1: [(0, b"x"), (1, None)]}
        assert consumer.position() == {0: 3, 1: 2}

    def test_leader_epochs_of_what_was_read_end_where_the_leaders_say(self, world: World) -> None:
        world.admin.create_topic(world.topic, 2)
        world.produce(0, b"a", b"b")
        world.produce(1, b"x")
        consumer = world.consumer(world.topic)
        consumer.assign({0: 0, 1: 0})
        epochs: dict[int, LeaderEpochs] = {}
        for batch in poll_for(consumer, 100, 3):
            epochs = continued(epochs, batch.epochs)
        assert {partition: known.end for partition, known in epochs.items()} == {0: 2, 1: 1}
        ends = consumer.epoch_ends({0: None, 1: epochs[1].epoch})
        assert ends == {0: (epochs[0].epoch, 2), 1: (epochs[1].epoch, 1)}

    def test_an_epoch_that_no_leader_has_yet_is_no_answer(self, world: World) -> None:
        world.admin.create_topic(world.topic, 1)
        with pytest.raises(Unavailable):
            world.consumer(world.topic).epoch_ends({0: 1_000})

    def test_position_is_next_to_read_before_anything_is_read(self, world: World) -> None:
        world.admin.create_topic(world.topic, 1)
        world.produce(0, b"a", b"b")
        consumer = world.consumer(world.topic)
        consumer.assign({0: 1})
        assert consumer.position() == {0: 1}

    def test_a_batch_is_bounded_and_the_rest_comes_next(self, world: World) -> None:
        world.admin.create_topic(world.topic, 1)
        world.produce(0, *(b"%d" % number for number in range(25)))
        consumer = world.consumer(world.topic)
        consumer.assign({0: 0})
        batches = poll_for(consumer, 10, 25)
        assert max(map(len, batches)) <= 10
        assert np.concatenate([batch.offsets for batch in batches]).tolist() == list(range(25))

    def test_a_quiet_topic_gives_an_empty_batch_after_the_timeout(self, world: World) -> None:
        world.admin.create_topic(world.topic, 1)
        consumer = world.consumer(world.topic)
        consumer.assign({0: 0})
        assert len(consumer.poll(10, 0.05)) == 0

    def test_a_paused_partition_gives_nothing_and_keeps_its_position(self, world: World) -> None:
        world.admin.create_topic(world.topic, 2)
        consumer = world.consumer(world.topic)
        consumer.assign({0: 0, 1: 0})
        consumer.pause([0])
        world.produce(0, b"a")
        world.produce(1, b"x")
        assert read(consumer, 1) == {1: [(0, b"x")]}
        assert len(consumer.poll(10, 0.3)) == 0
        assert consumer.position() == {0: 0, 1: 1}
        consumer.resume([0])
        assert read(consumer, 1) == {0: [(0, b"a")]}

    def test_pausing_all_and_resuming_all_loses_and_repeats_nothing(self, world: World) -> None:
        world.admin.create_topic(world.topic, 1)
        world.produce(0, *(b"%d" % number for number in range(20)))
        consumer = world.consumer(world.topic)
        consumer.assign({0: 0})
        first = [offset for batch in poll_for(consumer, 5, 5) for offset in batch.offsets.tolist()]
        consumer.pause()
        assert len(consumer.poll(10, 0.2)) == 0
        consumer.resume()
        rest = read(consumer, 20 - len(first))
        assert first + [offset for offset, _ in rest[0]] == list(range(20))

    def test_added_partitions_are_found_and_read_beside_the_others(self, world: World) -> None:
        world.admin.create_topic(world.topic, 1)
        world.produce(0, b"a")
        consumer = world.consumer(world.topic)
        consumer.assign({0: 0})
        assert read(consumer, 1) == {0: [(0, b"a")]}
        world.admin.add_partitions(world.topic, 2)
        until(lambda: consumer.partitions() == [0, 1], "the new partition")
        world.produce(1, b"x")
        world.produce(0, b"b")
        consumer.add_partitions({1: 0})
        assert read(consumer, 2) == {0: [(1, b"b")], 1: [(0, b"x")]}

    def test_adding_a_partition_that_is_assigned_keeps_its_position(self, world: World) -> None:
        world.admin.create_topic(world.topic, 1)
        world.produce(0, b"a", b"b")
        consumer = world.consumer(world.topic)
        consumer.assign({0: 0})
        read(consumer, 2)
        consumer.add_partitions({0: 0})
        assert consumer.position() == {0: 2}

    def test_a_removed_partition_gives_nothing_and_the_others_keep_their_position(self, world: World) -> None:
        world.admin.create_topic(world.topic, 2)
        world.produce(0, b"a", b"b")
        world.produce(1, b"x")
        consumer = world.consumer(world.topic)
        consumer.assign({0: 0, 1: 0})
        read(consumer, 3)
        world.produce(0, b"c")
        consumer.remove_partitions([0, 7])
        world.produce(1, b"y")
        assert read(consumer, 1) == {1: [(1, b"y")]}
        assert len(consumer.poll(10, 0.3)) == 0
        assert consumer.position() == {1: 2}
        consumer.add_partitions({0: 1})
        assert read(consumer, 2) == {0: [(1, b"b"), (2, b"c")]}

    def test_the_ends_of_logs_are_known_once_something_was_fetched(self, world: World) -> None:
        world.admin.create_topic(world.topic, 2)
        world.produce(0, b"a", b"b", b"c")
        consumer = world.consumer(world.topic)
        consumer.assign({0: 1})
        read(consumer, 2)
        until(lambda: consumer.known_ends() == {0: 3}, "the end of the log")

    def test_the_log_range_is_start_and_end(self, world: World) -> None:
        world.admin.create_topic(world.topic, 1)
        world.produce(0, b"a", b"b", b"c")
        consumer = world.consumer(world.topic)
        assert consumer.log_range(0) == (0, 3)
        world.admin.delete_records(world.topic, {0: 2})
        until(lambda: consumer.log_range(0) == (2, 3), "the trimmed log")
        assert world.admin.offsets(world.topic, "earliest") == {0: 2}
        assert world.admin.offsets(world.topic, "latest") == {0: 3}

    def test_the_log_range_is_told_while_another_thread_polls_without_a_pause(self, world: World) -> None:
        world.admin.create_topic(world.topic, 1)
        world.produce(0, b"a", b"b")
        consumer = world.consumer(world.topic)
        consumer.assign({0: 2})
        ended = threading.Event()

        def poll() -> None:
            while not ended.is_set():
                consumer.poll(10, 0.5)

        with ThreadPoolExecutor(2) as pool:
            polling = pool.submit(poll)
            try:
                found = pool.submit(consumer.log_range, 0, DEADLINE_S)
                assert found.result(DEADLINE_S).end == 2
            finally:
                ended.set()
            polling.result(DEADLINE_S)

    def test_an_offset_below_the_log_is_an_error_that_names_both(self, world: World) -> None:
        world.admin.create_topic(world.topic, 1)
        world.produce(0, b"a", b"b", b"c")
        world.admin.delete_records(world.topic, {0: 2})
        consumer = world.consumer(world.topic)
        consumer.assign({0: 0})
        error = poll_until_raises(consumer, OffsetsGone)
        assert isinstance(error, OffsetsGone)
        assert (error.partition, error.position, error.start, error.end) == (0, 0, 2, 3)
        assert consumer.position() == {0: 0}
        poll_until_raises(consumer, OffsetsGone)  # it does not go away by itself
        consumer.assign({0: 2})
        assert read(consumer, 1) == {0: [(2, b"c")]}

    def test_an_offset_beyond_the_log_is_an_error_too(self, world: World) -> None:
        world.admin.create_topic(world.topic, 1)
        world.produce(0, b"a")
        consumer = world.consumer(world.topic)
        consumer.assign({0: 7})
        error = poll_until_raises(consumer, OffsetsGone)
        assert isinstance(error, OffsetsGone)
        assert (error.position, error.start, error.end) == (7, 0, 1)

    def test_a_topic_that_does_not_exist_is_not_found(self, world: World) -> None:
        consumer = world.consumer(world.topic)
        with pytest.raises(NotFound):
            consumer.partitions()
        consumer.assign({0: 0})
        poll_until_raises(consumer, NotFound)

    def test_a_deleted_topic_is_not_found(self, world: World) -> None:
        world.admin.create_topic(world.topic, 1)
        world.produce(0, b"a")
        consumer = world.consumer(world.topic)
        consumer.assign({0: 0})
        read(consumer, 1)
        world.admin.delete_topic(world.topic)
        poll_until_raises(consumer, NotFound)

    def test_a_topic_keeps_its_id_and_another_under_its_name_has_another(self, world: World) -> None:
        world.admin.create_topic(world.topic, 1)
        consumer = world.consumer(world.topic)
        until(lambda: _topic_id(consumer) is not None, "the topic's id")
        first = consumer.topic_id()
        world.produce(0, b"a")
        assert consumer.topic_id() == world.admin.topic_id(world.topic) == first
        world.admin.delete_topic(world.topic)
        until(lambda: _topic_id(consumer) is None, "the end of the topic")
        until(lambda: world.admin.create_topic(world.topic, 1), "a new topic")
        until(lambda: _topic_id(consumer) is not None, "the new topic's id")
        assert consumer.topic_id() != first

    def test_a_topic_that_does_not_exist_has_no_id(self, world: World) -> None:
        with pytest.raises(NotFound):
            world.consumer(world.topic).topic_id()
        with pytest.raises(NotFound):
            world.admin.topic_id(world.topic)

    def test_the_position_passes_offsets_without_records(self, world: World) -> None:
        world.admin.create_topic(world.topic, 1)
        world.produce(0, b"a")
        world.gap(world.topic, 0)
        consumer = world.consumer(world.topic)
        until(lambda: consumer.log_range(0).end > 1, "the gap")
        end = consumer.log_range(0).end
        consumer.assign({0: 0})
        read(consumer, 1)
        until(lambda: len(consumer.poll(10, 0.1)) == 0 and consumer.position() == {0: end}, "the end")
        world.produce(0, b"b")
        assert read(consumer, 1) == {0: [(end, b"b")]}

    def test_assigning_anew_forgets_what_was_assigned(self, world: World) -> None:
        world.admin.create_topic(world.topic, 2)
        world.produce(0, b"a", b"b")
        world.produce(1, b"x")
        consumer = world.consumer(world.topic)
        consumer.assign({0: 0})
        read(consumer, 2)
        consumer.assign({1: 0})
        assert read(consumer, 1) == {1: [(0, b"x")]}
        assert consumer.position() == {1: 1}

    def test_creating_twice_is_harmless_and_growing_must_grow(self, world: World) -> None:
        assert world.admin.create_topic(world.topic, 2)
        assert not world.admin.create_topic(world.topic, 2)
        until(lambda: world.admin.partitions(world.topic) == [0, 1], "the topic")
        with pytest.raises(Refused):
            world.admin.add_partitions(world.topic, 1)

    def test_producing_to_a_missing_topic_fails(self, world: World) -> None:
        with pytest.raises(NotFound):
            world.produce(0, b"a")

    def test_a_topic_that_was_missing_takes_records_as_soon_as_it_is_made(self, world: World) -> None:
        with pytest.raises(NotFound):
            world.produce(0, b"a")
        world.admin.create_topic(world.topic, 1)
        world.produce(0, b"b")
        consumer = world.consumer(world.topic)
        consumer.assign({0: 0})
        assert read(consumer, 1) == {0: [(0, b"b")]}

    def test_a_batch_ends_where_its_bytes_end(self, world: World) -> None:
        world.admin.create_topic(world.topic, 1)
        count, group = 12_500, 10_000
        world.produce(0, *(b"%d" % number for number in range(count)))
        consumer = world.consumer(world.topic)
        consumer.assign({0: 0})
        offsets: list[int] = []
        deadline = time.monotonic() + patience_s(DEADLINE_S)
        while len(offsets) < count:
            assert time.monotonic() < deadline, f"waited {DEADLINE_S:.0f} s for {count} records"
            batch = consumer.poll(count, 0.2, bytes_max=1)
            assert len(batch) <= group + 1
            offsets += batch.offsets.tolist()
        assert offsets == list(range(count))

    def test_a_record_that_the_broker_refuses_is_told_for_itself(self, world: World) -> None:
        world.admin.create_topic(world.topic, 1, config={"max.message.bytes": "1000"})
        small, large = OutRecord(b"a", partition=0), OutRecord(os.urandom(2000), partition=0)
        reported: list[tuple[OutRecord, RtolapError | None]] = []
        for record in (small, large, small):
            world.producer.produce(
                world.topic, [record], delivered=lambda record, error: reported.append((record, error))
            )
            world.producer.flush(DEADLINE_S)
        world.producer.poll()
        assert [(record, type(error)) for record, error in reported] == [
            (small, type(None)),
            (large, TooLarge),
            (small, type(None)),
        ]
        with pytest.raises(Refused):
            world.produce(0, large.value)
        world.produce(0, b"b")

    def test_offsets_of_a_topic_just_created_are_known(self, world: World) -> None:
        world.admin.create_topic(world.topic, 8)
        assert world.admin.offsets(world.topic, "latest") == dict.fromkeys(range(8), 0)
