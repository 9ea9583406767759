"""Reading a dead-letter topic, which has refused records with where they came from and why. It is for people,
and not fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from rtolap.base.errors import NotFound, Unavailable
from rtolap.kafka.clusters import KafkaCluster
from rtolap.kafka.errors import FORBIDDEN, close_client, translated
from rtolap.kafka.settings import consumer_settings
from rtolap.model.offsets import Offsets

_TIMEOUT_S = 10.0
_POLL_S = 1.0
_VALUE_CHARS_MAX = 120
_BATCH_RECORDS = 1000


class DeadLetter(NamedTuple):
    """`partition` and `offset` are those of the refused record; `value` is its beginning."""

    topic: str
    partition: int
    offset: int
    reason: str
    detail: str
    value: str | None


class KeptLetter(NamedTuple):
    """A dead letter as its topic keeps it.

    Attributes:
        partition: that of the refused record.
        offset: that of the refused record.
        value: its whole value, up to the size that a letter takes.
        headers: of the letter, by name.
    """

    partition: int
    offset: int
    value: bytes | None
    headers: Mapping[str, bytes]

    def text(self, header: str) -> str:
        """Return a header for people; "" where there is none."""
        return self.headers.get(header, b"").decode("utf-8", "replace")


class NewDeadLetters(NamedTuple):
    """The dead letters of a topic beyond the offsets of an earlier look.

    Attributes:
        letters: at most as many as were asked for, in the order of each partition.
        offsets: where the next look begins, of each partition.
        more: there are further ones.
    """

    letters: tuple[DeadLetter, ...]
    offsets: Offsets
    more: bool


class DatedLetter(NamedTuple):
    """A letter with the time of its record in the topic of dead letters."""

    at_ms: int
    letter: DeadLetter


class OlderDeadLetters(NamedTuple):
    """Letters before an earlier look.

    Attributes:
        letters: the newest first.
        before: where the next older ones end, of each partition.
        more: there are older ones.
    """

    letters: tuple[DatedLetter, ...]
    before: Offsets
    more: bool


def read_dead_letters(cluster: KafkaCluster | str, topic: str) -> Iterator[DeadLetter]:
    """Yield everything that the topic holds now. Raises NotFound, Forbidden or Unavailable."""
    for message in _messages(KafkaCluster.of(cluster), topic, _since({})):
        if not _is_further_part(message):
            yield _letter(message)


def kept_letters(cluster: KafkaCluster | str, topic: str, newest: int | None = None) -> Iterator[KeptLetter]:
    """Yield the letters that the topic holds now, whole. `newest`: only the last so many records of each
    partition; None for all. Raises NotFound, Forbidden or Unavailable."""
    for message in _messages(
        KafkaCluster.of(cluster), topic, _since({}) if newest is None else _last(newest)
    ):
        headers = {name: _bytes(value) for name, value in dict(message.headers() or ()).items()}
        value = message.value()
        yield KeptLetter(
            int(headers.get("partition", b"-1")),
            int(headers.get("offset", b"-1")),
            None if value is None else _bytes(value),
            headers,
        )


def new_dead_letters(
    cluster: KafkaCluster | str, topic: str, since: Mapping[int, int], letters_max: int
) -> NewDeadLetters:
    """Return the letters from the offsets `since` on; of a partition that it does not name, all.

    Raises NotFound, Forbidden or Unavailable.
    """
    letters: list[DeadLetter] = []
    offsets = dict(since)
    for message in _messages(KafkaCluster.of(cluster), topic, _since(since)):
        if not _is_further_part(message):
            if len(letters) == letters_max:
                return NewDeadLetters(tuple(letters), offsets, more=True)
            letters.append(_letter(message))
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        offsets[partition] = offset + 1
    return NewDeadLetters(tuple(letters), offsets, more=False)


def older_dead_letters(
    cluster: KafkaCluster | str, topic: str, before: Mapping[int, int], records_max: int
) -> OlderDeadLetters:
    """Return letters of the last `records_max` records before the offsets `before`, about as many of each
    partition; of a partition that it does not name, of its newest ones.

    Raises NotFound, Forbidden or Unavailable.
    """
    starts: dict[int, int] = {}
    firsts: dict[int, int] = {}

    def last_ones(partition: int, first: int, end: int, partitions: int) -> _Range:
        stop = min(max(before.get(partition, end), first), end)
        firsts[partition] = first
        starts[partition] = max(first, stop - max(1, records_max // partitions))
        return _Range(starts[partition], stop)

    letters = [
        DatedLetter(message.timestamp()[1], _letter(message))
        for message in _messages(KafkaCluster.of(cluster), topic, last_ones)
        if not _is_further_part(message)
    ]
    # Many are refused in one millisecond.
    letters.sort(key=lambda each: (each.at_ms, each.letter.partition, each.letter.offset), reverse=True)
    return OlderDeadLetters(tuple(letters), starts, more=starts != firsts)


class _Range(NamedTuple):
    """Offsets of a partition to read. stop: None reads to the end."""

    start: int
    stop: int | None = None


_Wanted = Callable[[int, int, int, int], _Range]  # partition, its first and end offset, number of partitions


def _since(since: Mapping[int, int]) -> _Wanted:
    """From `since` on. An offset that the topic does not have is of an earlier topic of that name: then all
    that this one holds comes."""

    def wanted(partition: int, first: int, end: int, _partitions: int) -> _Range:
        known = since.get(partition, first)
        return _Range(known if first <= known <= end else first)

    return wanted


def _last(records: int) -> _Wanted:
    """Return what wants the last so many records of each partition."""
    return lambda _partition, first, end, _partitions: _Range(max(first, end - records))


def _messages(reached: KafkaCluster, topic: str, wanted: _Wanted) -> Iterator[Message]:
    """Yield the wanted records of those that the topic holds now."""
    consumer = reached.open(Consumer, consumer_settings("rtolap-dead-letters"))
    try:
        metadata = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
        if metadata.error is not None:
            if metadata.error.code() in FORBIDDEN:
                raise translated("read", topic, metadata.error, reached)
            raise NotFound(f"there is no topic {topic}: nothing was refused yet")
        ranges: dict[int, _Range] = {}
        for number in metadata.partitions:
            first, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_TIMEOUT_S)
            ranges[number] = wanted(number, first, end, len(metadata.partitions))
        open_partitions = {number for number, each in ranges.items() if each.start != each.stop}
        consumer.assign([TopicPartition(topic, number, ranges[number].start) for number in open_partitions])
        while open_partitions:
            for message in consumer.consume(_BATCH_RECORDS, timeout=_POLL_S):
                error = message.error()
                if error is None:
                    number, offset = message.partition(), message.offset()
                    assert number is not None
                    assert offset is not None
                    stop = ranges[number].stop
                    if stop is not None and offset + 1 >= stop:
                        open_partitions.discard(number)
                    if stop is None or offset < stop:
                        yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
                else:
                    raise translated("read", topic, error, reached)
    except KafkaException as error:
        raise Unavailable(f"Kafka at {reached.servers} does not answer", found=str(error)) from error
    finally:
        close_client(f"a consumer of {topic}", consumer.close)


def _is_further_part(message: Message) -> bool:
    """Return whether a message is a further part of a letter. A letter above the largest record size is
    several records, and the first one holds everything that is shown."""
    part = _text(dict(message.headers() or ()).get("part")) or "1/1"
    return not part.startswith("1/")


def _letter(message: Message) -> DeadLetter:
    headers = {name: _text(value) or "" for name, value in dict(message.headers() or ()).items()}
    value = _text(message.value())
    return DeadLetter(
        headers.get("topic", ""),
        int(headers.get("partition", "-1")),
        int(headers.get("offset", "-1")),
        headers.get("reason", ""),
        headers.get("detail", ""),
        None if value is None else value[:_VALUE_CHARS_MAX],
    )


def _bytes(value: bytes | str | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


def _text(value: bytes | str | None) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
