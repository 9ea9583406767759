"""`rtolap dead-letters`: records that could not be read, with where they came from and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, NamedTuple

import msgspec
import typer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from rtolap.base.errors import NotFound, Unavailable
from rtolap.base.settings import Settings
from rtolap.cli.definitions import coordinator
from rtolap.cli.output import JsonOption, print_table
from rtolap.model.table import Table

app = typer.Typer(help="Records that were refused.")

_TIMEOUT_S = 10.0
_POLL_S = 1.0
_VALUE_CHARS_MAX = 120
_BATCH_RECORDS = 1000
COLUMNS = ("topic", "partition", "offset", "reason", "detail", "value")


class DeadLetter(NamedTuple):
    """`partition` and `offset` are those of the refused record; `value` is its beginning."""

    topic: str
    partition: int
    offset: int
    reason: str
    detail: str
    value: str | None


@app.command("list")
def list_records(
    table: Annotated[str, typer.Argument(help="The table whose topic refused them.")],
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many, the oldest first.")] = 50,
    reason: Annotated[str | None, typer.Option(help="Only those with this reason.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List them, each once, however many receivers reported it."""
    settings = Settings()
    with coordinator(settings) as client:
        topic = msgspec.convert(client.table(table), Table).dead_letter_topic
    seen: dict[tuple[str, int, int], DeadLetter] = {}
    for letter in read_all(settings.kafka, topic):
        if reason is None or letter.reason == reason:
            seen.setdefault((letter.topic, letter.partition, letter.offset), letter)
        if len(seen) >= limit:
            break
    print_table(COLUMNS, [seen[place] for place in sorted(seen)], as_json=as_json)


def read_all(bootstrap: str, topic: str) -> Iterator[DeadLetter]:
    """Everything that the topic holds now. Raises NotFound or Unavailable."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "rtolap-dead-letters",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    try:
        metadata = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
        if metadata.error is not None:
            raise NotFound(f"there is no topic {topic}: nothing was refused yet")
        partitions = [TopicPartition(topic, partition, 0) for partition in metadata.partitions]
        for partition in partitions:
            partition.offset = consumer.get_watermark_offsets(partition, timeout=_TIMEOUT_S)[0]
        consumer.assign(partitions)
        open_partitions = {partition.partition for partition in partitions}
        while open_partitions:
            for message in consumer.consume(_BATCH_RECORDS, timeout=_POLL_S):
                error = message.error()
                if error is None:
                    yield _letter(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
                else:
                    raise Unavailable(f"topic {topic} cannot be read", found=str(error))
    except KafkaException as error:
        raise Unavailable(f"Kafka at {bootstrap} does not answer", found=str(error)) from error
    finally:
        consumer.close()


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


def _text(value: bytes | str | None) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
