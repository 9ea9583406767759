"""Sampled events: of a file with a record a line, or the last records of a topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from rtolap.base.clock import Clock
from rtolap.base.errors import DefinitionError, Unavailable
from rtolap.events.decode import Decoded, EventDecoder
from rtolap.kafka.interfaces import StreamConsumer
from rtolap.model.cube import Schema

LINE_FORMATS = ("json", "csv")
_POLL_RECORDS, _POLL_S = 50_000, 0.5
_SILENT_S_MAX = 30.0


@dataclass(frozen=True)
class Sample:
    """Decoded events, with the columns of `Decoded.table`.

    Attributes:
        records: that were read.
        refused: of these, by reason, with an example of each.
    """

    events: pa.Table
    records: int
    refused: dict[str, str]


def of_file(schema: Schema, path: Path, now_ms: int) -> Sample:
    """Read a file with a record a line. Raises DefinitionError for a format that has no lines, or a file that
    cannot be read."""
    form = schema.table.record_format.type
    if form not in LINE_FORMATS:
        raise DefinitionError(
            f"records of {form} have no lines",
            expected=f"a table of {' or '.join(LINE_FORMATS)}",
            action="sample the topic: --last",
        )
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise DefinitionError(f"the sample {path} cannot be read", found=str(error)) from error
    count = len(lines)
    decoded = EventDecoder(schema).decode(
        lines, np.zeros(count, np.int32), np.arange(count, dtype=np.int64), now_ms=now_ms
    )
    return _sample([decoded], count)


def of_topic(schema: Schema, consumer: StreamConsumer, records: int, clock: Clock) -> Sample:
    """Read the last records of each partition, as many of each. Closes nothing.

    Raises NotFound without the topic, Unavailable where the broker gives nothing for _SILENT_S_MAX.
    """
    ranges = {partition: consumer.log_range(partition) for partition in consumer.partitions()}
    of_each = max(1, records // max(1, len(ranges)))
    start = {partition: max(log.start, log.end - of_each) for partition, log in ranges.items()}
    ends = {partition: log.end for partition, log in ranges.items()}
    wanted = {partition: at for partition, at in start.items() if at < ends[partition]}
    decoder, decoded, count = EventDecoder(schema), list[Decoded](), 0
    if wanted:
        consumer.assign(wanted)
    heard_s = clock.monotonic_s()
    while any(consumer.position()[partition] < ends[partition] for partition in wanted):
        batch = consumer.poll(_POLL_RECORDS, _POLL_S)
        if not len(batch):
            if clock.monotonic_s() - heard_s > _SILENT_S_MAX:
                raise Unavailable(f"topic {schema.table.topic} gives no records", found=consumer.broker_error)
            continue
        heard_s = clock.monotonic_s()
        count += len(batch)
        decoded.append(
            decoder.decode(
                batch.values,
                batch.partitions,
                batch.offsets,
                now_ms=clock.now_ms(),
                create_ms=batch.create_ms,
                statements=batch.statements,
                texts=batch.texts,
            )
        )
    return _sample(decoded, count)


def _sample(decoded: Sequence[Decoded], records: int) -> Sample:
    refused: dict[str, str] = {}
    for each in decoded:
        for reason, detail in zip(each.rejects.reason, each.rejects.detail, strict=True):
            refused.setdefault(str(reason), str(detail))
    tables = [each.table for each in decoded if each.table.num_rows]
    if not tables:
        raise DefinitionError(
            "the sample has no event that the cube takes",
            expected="at least one",
            found="; ".join(f"{reason}: {detail}" for reason, detail in refused.items()) or "no record",
        )
    return Sample(pa.concat_tables(tables), records, refused)
