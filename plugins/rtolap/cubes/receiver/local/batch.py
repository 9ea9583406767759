"""One decoded batch → the local tables that it adds. Pure.

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

RANKS = (1, 2)


@dataclass(frozen=True)
class Seen:
    """The counts of one partition in one batch."""

    events: int
    watermark_ms: int
    late: int
    dropped: int


@dataclass(frozen=True)
class BatchTables:
    """`tables` by segment start; `seen` by partition."""

    tables: Mapping[int, tuple[LocalTable, ...]] = field(default_factory=dict)
    seen: Mapping[int, Seen] = field(default_factory=dict)


def decode_batch(decoder: EventDecoder, batch: Batch, now_ms: int) -> Decoded:
    """Decode all that was polled at once."""
    return decoder.decode(
        batch.values,
        batch.partitions,
        batch.offsets,
        now_ms=now_ms,
        create_ms=batch.create_ms,
        statements=batch.statements,
    )


def batch_tables(
    schema: Schema, events: pa.Table, vectors: Mapping[int, Vectors], horizon_ms: int | None
) -> BatchTables:
    """`events` as `stream.decode` gives them."""
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
        kept = split.rows(rank)
        if kept is not None and not kept.any():
            continue
        chosen = events if kept is None or kept.all() else events.filter(pa.array(kept))
        ranges = _ranges(everything if kept is None else _grouped(columns, kept))
        for start_ms, table in aggregate_events(schema, chosen).items():
            version = vectors.get(start_ms, NO_VECTORS).version + rank
            fresh = LocalTable(
                table=table,
                events=sum_of_rows(table),
                ranges=ranges[start_ms],
                versions=(version,),
            )
            tables_by_segment[start_ms] = (*tables_by_segment.get(start_ms, ()), fresh)
    return BatchTables(tables_by_segment, _seen(everything, split.late, split.dropped))


def sum_of_rows(table: pa.Table) -> int:
    """Number of events in a local table."""
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


def _grouped(columns: dict[str, Int64s], kept: npt.NDArray[np.bool_] | None) -> list[_Group]:
    chosen = columns if kept is None else {name: column[kept] for name, column in columns.items()}
    grouped = (
        pa.table(chosen)
        .group_by(["segment", "partition"], use_threads=False)
        .aggregate([("offset", "min"), ("offset", "max"), ("event_ms", "max"), ("event_ms", "count")])
    )
    names = ("segment", "partition", "offset_min", "offset_max", "event_ms_max", "event_ms_count")
    return [_Group(*row) for row in zip(*(grouped.column(name).to_pylist() for name in names), strict=True)]


def _ranges(groups: Iterable[_Group]) -> dict[int, Ranges]:
    ranges: dict[int, Ranges] = {}
    for group in groups:
        ranges.setdefault(group.segment_ms, {})[group.partition] = (group.offset_min, group.offset_max + 1)
    return ranges


def _seen(groups: Iterable[_Group], late: Int64s, dropped: Int64s) -> dict[int, Seen]:
    counts: dict[int, Seen] = {}
    for group in groups:
        part = group.partition
        before = counts.get(part, Seen(0, group.event_ms_max, int(late[part]), int(dropped[part])))
        counts[part] = replace(
            before,
            events=before.events + group.rows,
            watermark_ms=max(before.watermark_ms, group.event_ms_max),
        )
    return counts
