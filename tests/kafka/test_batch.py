"""The columns of a batch are what each message says, however long the runs of a partition are."""

from __future__ import annotations

import random

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, Message
from rtolap.kafka.batch import joined, to_batch
from rtolap.model.leader_epochs import EpochRange


def _message(partition: int, offset: int, stamp: tuple[int, int]) -> Message:
    return Message(topic="t", partition=partition, offset=offset, value=b"%d" % offset, timestamp=stamp)


@pytest.mark.parametrize("seed", range(30))
def test_offsets_are_those_of_the_messages_whether_or_not_some_are_missing(seed: int) -> None:
    dice = random.Random(seed)
    nexts = [dice.randrange(1 << 40) for _ in range(3)]
    run_max, gap_share = dice.choice((1, 5, 40, 400)), dice.choice((0, 0, 0.001, 0.1))
    messages = []
    for _ in range(dice.choice((0, 1, 3, 20))):
        partition = dice.randrange(3)
        for _ in range(dice.randrange(1, run_max + 1)):
            nexts[partition] += dice.randrange(2, 5) if dice.random() < gap_share else 1
            messages.append(_message(partition, nexts[partition], (TIMESTAMP_CREATE_TIME, 5)))
    batch = to_batch(messages, with_create_ms=True)
    assert batch.offsets.tolist() == [message.offset() for message in messages]
    assert batch.partitions.tolist() == [message.partition() for message in messages]
    assert batch.values == [message.value() for message in messages]


@pytest.mark.parametrize("seed", range(30))
def test_epochs_are_those_of_the_messages_whenever_the_leader_changes(seed: int) -> None:
    dice = random.Random(seed)
    run_max, change_share = dice.choice((1, 5, 200)), dice.choice((0, 0.001, 0.2))
    nexts, epochs = [dice.randrange(1 << 40) for _ in range(3)], [dice.randrange(9) for _ in range(3)]
    messages, wanted = [], {}
    for _ in range(dice.choice((0, 1, 3, 20))):
        partition = dice.randrange(3)
        for _ in range(dice.randrange(1, run_max + 1)):
            nexts[partition] += dice.choice((1, 1, 1, 4))
            offset = nexts[partition]
            ranges = wanted.setdefault(partition, [])
            if dice.random() < change_share:
                epochs[partition] += dice.randrange(1, 3)
            epoch = epochs[partition]
            begun = ranges.pop().start if ranges and ranges[-1].epoch == epoch else offset
            ranges.append(EpochRange(epoch, begun, offset + 1))
            messages.append(Message(topic="t", partition=partition, offset=offset, leader_epoch=epoch))
    found = to_batch(messages, with_create_ms=False).epochs
    assert {partition: list(each.ranges) for partition, each in found.items()} == wanted


def test_a_gap_that_another_partition_fills_in_number_is_seen() -> None:
    """Ends of a run that fit together say nothing where the run is not of one partition."""
    places = [(0, n) for n in range(10)] + [(1, 7)] + [(0, n) for n in range(11, 30)]
    messages = [_message(*place, (TIMESTAMP_CREATE_TIME, 5)) for place in places]
    batch = to_batch(messages, with_create_ms=False)
    assert list(zip(batch.partitions.tolist(), batch.offsets.tolist(), strict=True)) == places


def test_keys_and_headers_are_read_where_they_are_wanted() -> None:
    headers = [[("a", b"1"), ("b", b"x"), ("a", b"2")], None, [("a", None)]]
    messages = [
        Message(topic="t", partition=0, offset=n, key=key, headers=each)
        for n, (key, each) in enumerate(zip([b"k", None, "s"], headers, strict=True))
    ]
    found = to_batch(messages, with_create_ms=False, sources=("key", "header:a", "header:c"))
    assert found.texts == {
        "key": [b"k", None, b"s"],
        "header:a": [b"2", None, None],
        "header:c": [None, None, None],
    }
    assert joined([found, found]).texts["key"] == [b"k", None, b"s"] * 2
    assert to_batch(messages, with_create_ms=False).texts == {}


def test_only_a_message_without_a_timestamp_has_none() -> None:
    stamps = [
        (TIMESTAMP_CREATE_TIME, 7),
        (TIMESTAMP_NOT_AVAILABLE, 0),
        (TIMESTAMP_CREATE_TIME, 0),
        (TIMESTAMP_NOT_AVAILABLE, -1),
    ]
    batch = to_batch([_message(0, n, stamp) for n, stamp in enumerate(stamps)], with_create_ms=True)
    assert batch.create_ms is not None
    assert batch.create_ms.tolist() == [7, -1, 0, -1]
