"""Batches in the in-process cluster: rows of another source than the topic, staged as Spark stages them."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rtolap.columnar.schema import physical_schema
from rtolap.cubes.format.aggregate import aggregate_events, merge_tables, to_plain
from rtolap.cubes.format.history import describe_file
from rtolap.cubes.format.manifest import (
    BATCH_NAME,
    MANIFEST_NAME,
    BatchManifest,
    BatchPart,
    FileEntry,
    StagedManifest,
    encode,
)
from rtolap.events.decode import EventDecoder
from rtolap.model.batch import BatchSegment, BatchSpec
from rtolap.model.cube import Schema
from rtolap.model.segment import StagedPart, parse_segment_name
from rtolap.object_store.store import ObjectStore

from tests.support.cubes.builders import WINDOW_MS, Event, random_event
from tests.support.query.visitors import with_visitor


@dataclass(frozen=True)
class SaidByBatch:
    """What a batch says of a segment: its events, in place of those of the topic below these offsets."""

    events: tuple[Event, ...]
    below: Mapping[int, int]


def drawn_events(random_: random.Random, start_ms: int) -> Iterator[tuple[bytes, Event]]:
    """Yield a few events of the segment that begins here."""
    for _ in range(random_.randrange(6)):
        value, event = random_event(random_, start_ms)
        if value is not None and event is not None:
            at_ms = start_ms + event.event_ms % WINDOW_MS
            value = json.dumps({**json.loads(value), "ts": at_ms}).encode()
            yield with_visitor(random_, value, replace(event, event_ms=at_ms))


def stage(
    store: ObjectStore, schema: Schema, spec: BatchSpec, random_: random.Random
) -> dict[str, SaidByBatch]:
    """Write the parts of a planned batch, of drawn events, and its manifest. Return what each segment holds,
    by the path of its part."""
    said: dict[str, SaidByBatch] = {}
    parts = []
    for place, segment in enumerate(spec.segments):
        drawn = list(drawn_events(random_, parse_segment_name(segment.segment).start_ms))
        if drawn or segment.is_recorded:
            path = f"{spec.folder}/rows/__segment={place}"
            parts.append(_part(store, schema, spec, segment, path, [value for value, _ in drawn]))
            below = {piece.partition: piece.end for piece in segment.ranges}
            said[path] = SaidByBatch(tuple(event for _, event in drawn), below)
    manifest = BatchManifest(cube=spec.cube, batch=spec.batch, parts=tuple(parts))
    store.write(f"{spec.folder}/{BATCH_NAME}", encode(manifest))
    return said


def _part(
    store: ObjectStore,
    schema: Schema,
    spec: BatchSpec,
    segment: BatchSegment,
    path: str,
    values: Sequence[bytes],
) -> BatchPart:
    rows = rolled_up(schema, values)
    files: tuple[FileEntry, ...] = ()
    if rows.num_rows:
        sink = io.BytesIO()
        pq.write_table(rows, sink)
        store.write(f"{path}/part-0.parquet", sink.getvalue())
        files = (describe_file(store, path, "part-0.parquet"),)
    manifest = StagedManifest(
        cube=spec.cube,
        segment=segment.segment,
        version=segment.version,
        replica_set="batch",
        ranges=segment.ranges,
        files=files,
        events=len(values),
    )
    store.write(f"{path}/{MANIFEST_NAME}", encode(manifest))
    part = StagedPart(
        "batch", path, segment.ranges, rows.num_rows, len(values), sum(file.bytes for file in files)
    )
    return BatchPart(segment.segment, segment.version, part)


def rolled_up(schema: Schema, values: Sequence[bytes]) -> pa.Table:
    plain = physical_schema(schema, plain=True)
    nowhere = np.zeros(len(values), np.int32), np.zeros(len(values), np.int64)
    decoded = EventDecoder(schema).decode(values, *nowhere, now_ms=1 << 50)
    assert not len(decoded.rejects), "drawn events are events"
    tables = list(aggregate_events(schema, decoded.table).values())
    return to_plain(schema, merge_tables(schema, tables)).select(plain.names).cast(plain)


def spec_of(definition: Mapping[str, object]) -> BatchSpec:
    return msgspec.convert(definition, BatchSpec)
