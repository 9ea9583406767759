"""Turns a decoded batch into the local tables that it adds. Pure.

Rows are ranked by the vectors (`align.split_batch`), aggregated once per rank, and every table gets the
tight offset range per partition of the rows it was made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rtolap.columnar.schema import EVENT_MS, OFFSET, PARTITION
from rtolap.cubes.format.aggregate import aggregate_events
from rtolap.cubes.receiver.local.align import NO_VECTORS, Int64s, Ranges, Vectors, split_batch
from rtolap.cubes.receiver.local.tables import LocalTable
from rtolap.events.decode import Decoded, EventDecoder
from rtolap.kafka.interfaces import Batch
from rtolap.model.cube import ROWS, Schema
from rtolap.scan.groups import group
from rtolap.scan.keys import Coded, code

RANKS = (1, 2)
LATE_SAMPLES = 10  # late events that are kept to be shown


class LateEvent(NamedTuple):
    """The place of an event that came after its segment had closed."""

    partition: int
    offset: int
    event_ms: int


@dataclass(frozen=True)
class Seen:
    """The counts of one partition in one batch."""

    events: int
    watermark_ms: int
    late: int
    dropped: int


@dataclass(frozen=True)
class BatchTables:
    """The tables of one batch.

    Attributes:
        tables: by segment start.
        seen: by partition.
        late: the last ones of the late events, at most LATE_SAMPLES.
    """

    tables: Mapping[int, tuple[LocalTable, ...]] = field(default_factory=dict)
    seen: Mapping[int, Seen] = field(default_factory=dict)
    late: tuple[LateEvent, ...] = ()


def decode_batch(decoder: EventDecoder, batch: Batch, now_ms: int) -> Decoded:
    """Decode all that was polled at once."""
    return decoder.decode(
        batch.values,
        batch.partitions,
        batch.offsets,
        now_ms=now_ms,
        create_ms=batch.create_ms,
        statements=batch.statements,
        texts=batch.texts,
    )


def segment_starts(events: pa.Table, window_ms: int) -> list[int]:
    """Return the starts of the segments that the events fall into."""
    if not events.num_rows:
        return []
    segment_ms = _int64s(events, EVENT_MS) // window_ms
    low, high = int(segment_ms.min()), int(segment_ms.max())
    numbers = [low] if low == high else np.unique(segment_ms).tolist()
    return [int(number) * window_ms for number in numbers]


def batch_tables(
    schema: Schema, events: pa.Table, vectors: Mapping[int, Vectors], horizon_ms: int | None
) -> BatchTables:
    """Return the tables of a batch. `events` come from `events.decode`."""
    if not events.num_rows:
        return BatchTables()
    window_ms = schema.cube.segment.window_ms
    event_ms = _int64s(events, EVENT_MS)
    partition, offset = _int64s(events, PARTITION), _int64s(events, OFFSET)
    segment_ms = event_ms // window_ms * window_ms
    split = split_batch(segment_ms, partition, offset, vectors, window_ms=window_ms, horizon_ms=horizon_ms)
    columns = {"segment": segment_ms, "partition": partition, "offset": offset, "event_ms": event_ms}
    everything = _grouped(columns, None)
    tables_by_segment: dict[int, tuple[LocalTable, ...]] = {}
    for rank in RANKS if split.ranks is not None else (1,):
        selected = split.rows(rank)
        if selected is not None and not selected.any():
            continue
        chosen = events if selected is None or selected.all() else events.filter(pa.array(selected))
        ranges = _ranges(everything if selected is None else _grouped(columns, selected))
        for start_ms, table in aggregate_events(schema, chosen).items():
            version = vectors.get(start_ms, NO_VECTORS).version + rank
            fresh = LocalTable(
                table=table,
                events=sum_of_rows(table),
                ranges=ranges[start_ms],
                versions=(version,),
            )
            tables_by_segment[start_ms] = (*tables_by_segment.get(start_ms, ()), fresh)
    late = tuple(
        LateEvent(int(partition[row]), int(offset[row]), int(event_ms[row]))
        for row in split.late_rows[-LATE_SAMPLES:].tolist()
    )
    return BatchTables(tables_by_segment, _seen(everything, split.late, split.dropped), late)


def sum_of_rows(table: pa.Table) -> int:
    """Return the number of events in a local table."""
    return int(table.column(ROWS).to_numpy().sum()) if table.num_rows else 0


def _int64s(table: pa.Table, name: str) -> Int64s:
    return np.asarray(table.column(name).to_numpy(), np.int64)


class _Group(NamedTuple):
    """Rows of one segment and partition."""

    segment_ms: int
    partition: int
    offset_min: int
    offset_max: int
    event_ms_max: int
    rows: int


def _grouped(columns: dict[str, Int64s], selected: npt.NDArray[np.bool_] | None) -> list[_Group]:
    chosen = columns if selected is None else {name: column[selected] for name, column in columns.items()}
    rows = len(chosen["offset"])
    keys = [_coded(chosen["segment"]), _coded(chosen["partition"])]
    groups = group(keys, rows)
    ids, largest = groups.ids, np.iinfo(np.int64)
    offset_min, offset_max = np.full(groups.size, largest.max), np.full(groups.size, largest.min)
    event_ms_max = offset_max.copy()
    np.minimum.at(offset_min, ids, chosen["offset"])
    np.maximum.at(offset_max, ids, chosen["offset"])
    np.maximum.at(event_ms_max, ids, chosen["event_ms"])
    columns_of_groups = (
        chosen["segment"][groups.first],
        chosen["partition"][groups.first],
        offset_min,
        offset_max,
        event_ms_max,
        np.bincount(ids, minlength=groups.size),
    )
    return [_Group(*row) for row in zip(*(column.tolist() for column in columns_of_groups), strict=True)]


def _coded(numbers: Int64s) -> Coded:
    """Code numbers that have few values, most often one."""
    if len(numbers) and (numbers == numbers[0]).all():
        return Coded(np.zeros(len(numbers), np.int64), 1, None)
    return code(pa.array(numbers))


def _ranges(groups: Iterable[_Group]) -> dict[int, Ranges]:
    ranges: dict[int, Ranges] = {}
    for each in groups:
        ranges.setdefault(each.segment_ms, {})[each.partition] = (each.offset_min, each.offset_max + 1)
    return ranges


def _seen(groups: Iterable[_Group], late: Int64s, dropped: Int64s) -> dict[int, Seen]:
    counts: dict[int, Seen] = {}
    for each in groups:
        part = each.partition
        before = counts.get(part, Seen(0, each.event_ms_max, int(late[part]), int(dropped[part])))
        counts[part] = replace(
            before,
            events=before.events + each.rows,
            watermark_ms=max(before.watermark_ms, each.event_ms_max),
        )
    return counts
