"""The first records of a topic, and what a table makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from rtolap.base.clock import Clock
from rtolap.base.errors import DefinitionError, Unavailable
from rtolap.events.decode import Decoded, EventDecoder
from rtolap.events.formats.readers import Registries
from rtolap.kafka.interfaces import StreamConsumer
from rtolap.model.cube import Cube, Measure, Schema
from rtolap.model.table import Table

_POLL_S = 0.5
_SILENT_S_MAX = 20.0


class Record(NamedTuple):
    """A record. `create_ms` is its own timestamp, negative for none."""

    value: bytes | None
    create_ms: int = -1


def first_records(consumer: StreamConsumer, count: int, clock: Clock) -> list[Record]:
    """Return the first records of each partition, about as many of each, at most `count`. Closes nothing.

    Raises NotFound without the topic, DefinitionError for an empty one, Unavailable where the broker is
    silent.
    """
    ranges = {partition: consumer.log_range(partition) for partition in consumer.partitions()}
    filled = {partition: log for partition, log in ranges.items() if log.end > log.start}
    if not filled:
        raise _empty(consumer.topic)
    of_each = max(1, count // len(filled))
    ends = {partition: min(log.end, log.start + of_each) for partition, log in filled.items()}
    consumer.assign({partition: log.start for partition, log in filled.items()})
    found: list[Record] = []
    heard_s = clock.monotonic_s()
    while len(found) < count and any(consumer.position()[each] < end for each, end in ends.items()):
        batch = consumer.poll(count, _POLL_S)
        if not len(batch):
            if clock.monotonic_s() - heard_s > _SILENT_S_MAX:
                raise Unavailable(f"topic {consumer.topic} gives no records", found=consumer.broker_error)
            continue
        heard_s = clock.monotonic_s()
        for at, value in enumerate(batch.values):
            if batch.offsets[at] < ends[int(batch.partitions[at])] and len(found) < count:
                found.append(Record(value, -1 if batch.create_ms is None else int(batch.create_ms[at])))
    if not found:
        raise _empty(consumer.topic)
    return found


def _empty(topic: str) -> DefinitionError:
    return DefinitionError(
        f"topic {topic} has no records to guess from",
        expected="at least one record",
        found="an empty topic",
        action=f"send some, by `rtolap produce` say, and call `rtolap init {topic}` again",
    )


def read_as(
    table: Table, columns: Iterable[str], records: Sequence[Record], *, now_ms: int, registries: Registries
) -> Decoded:
    """Return the records as a receiver of the table reads them, with these of its columns."""
    counted = tuple(Measure("count", name) for name in columns)
    cube = Cube(name="all_columns", table=table.name, dimensions=(), measures=counted)
    return EventDecoder(Schema(table, cube), registries).decode(
        [record.value for record in records],
        np.zeros(len(records), np.int32),
        np.arange(len(records), dtype=np.int64),
        now_ms=now_ms,
        create_ms=np.array([record.create_ms for record in records], np.int64),
    )
