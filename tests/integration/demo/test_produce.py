"""The replay on a real Kafka: offsets are those of the recount; dead letters are read back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rtolap.base.errors import NotFound, Refused
from rtolap.demo.flights import Replay, ReplayPlan
from rtolap.demo.produce import Sender, file_batches
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.kafka.dead_letters import read_dead_letters
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaAdmin, KafkaProducer


def stored(
    kafka: str, topic: str, first: dict[int, int], records: int
) -> dict[tuple[int, int], bytes | None]:
    consumer = KafkaConsumer(kafka, topic)
    found: dict[tuple[int, int], bytes | None] = {}
    try:
        consumer.assign(first)
        while len(found) < records:
            batch = consumer.poll(5000, 5.0)
            assert len(batch), f"{len(found)} of {records} records after five silent seconds"
            places = zip(batch.partitions.tolist(), batch.offsets.tolist(), strict=True)
            found |= dict(zip(places, batch.values, strict=True))
    finally:
        consumer.close()
    return found


def test_a_record_stands_at_the_offset_that_was_laid_out(
    kafka: str, create_topic: Callable[..., str]
) -> None:
    topic = create_topic(partitions=4)
    producer = KafkaProducer(kafka)
    producer.produce(topic, [OutRecord(b"earlier", partition=2)])
    producer.flush(20)
    replay = Replay(ReplayPlan(days=2, malformed=9))
    sender = Sender(producer, KafkaAdmin(kafka), topic)
    assert sender.first == {0: 0, 1: 0, 2: 1, 3: 0}
    seen: list[int] = []
    assert sender.send(replay.batches(), progress=seen.append) == replay.records
    ends = sender.finish()
    assert ends == {p: sender.first[p] + count for p, count in replay.end_offsets().items()}
    assert seen[-1] == replay.records
    found = stored(kafka, topic, sender.first, replay.records)
    laid_out = replay.connection.execute("SELECT p, o, value FROM replay").fetchall()
    assert found == {(p, sender.first[p] + o): value for p, o, value in laid_out}
    producer.produce(topic, [OutRecord(b"somebody else's", partition=0)])
    with pytest.raises(Refused, match="somebody else writes"):
        sender.finish()
    producer.close()


def test_lines_of_a_file_are_spread_and_limited(
    kafka: str, create_topic: Callable[..., str], tmp_path: Path
) -> None:
    file = tmp_path / "events.ndjson"
    file.write_text("".join(f'{{"n": {number}}}\n\n' for number in range(1200)))
    topic = create_topic(partitions=2)
    producer = KafkaProducer(kafka)
    sender = Sender(producer, KafkaAdmin(kafka), topic)
    assert sender.send(file_batches(file, [0, 1], 1001), rate=100_000.0) == 1001
    assert sender.finish() == {0: 501, 1: 500}
    producer.close()


def test_dead_letters_say_where_they_came_from(kafka: str, create_topic: Callable[..., str]) -> None:
    topic = create_topic()
    producer = KafkaProducer(kafka)
    headers = {"topic": b"t", "partition": b"3", "offset": b"17", "reason": b"not_json", "detail": b"at 4"}
    producer.produce(topic, [OutRecord(b"{\xff", headers=headers), OutRecord(None, headers=headers)])
    producer.flush(20)
    producer.close()
    first, second = read_dead_letters(kafka, topic)
    assert first[:5] == ("t", 3, 17, "not_json", "at 4")
    assert first.value == "{�"
    assert second.value is None
    with pytest.raises(NotFound):
        list(read_dead_letters(kafka, f"{topic}_missing"))
