"""Bringing local tables in line with the records: cut by their vectors, or out of a range that is read again.

`aligned` and `exchanged` change the whole local state; they are pure, and the arithmetic is in `align`. A
table that straddles a vector is read again, a bounded offset range for one segment, and cut at the vectors.
That runs beside the core: it takes immutable values, and the core decides whether the result still fits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rtolap.base.clock import Clock
from rtolap.base.errors import Unavailable
from rtolap.columnar.schema import EVENT_MS, OFFSET, PARTITION
from rtolap.cubes.format.aggregate import aggregate_events, merge_tables
from rtolap.cubes.receiver.local.align import NO_VECTORS, VersionedRange, pieces, vectors_of
from rtolap.cubes.receiver.local.batch import decode_batch, sum_of_rows
from rtolap.cubes.receiver.local.tables import (
    LocalSegment,
    LocalState,
    LocalTable,
    realigned,
    substituted,
    union,
)
from rtolap.cubes.receiver.views import CubeView
from rtolap.events.decode import EventDecoder
from rtolap.events.formats.readers import Registries, no_registries
from rtolap.kafka.interfaces import OffsetsGone, StreamConsumer
from rtolap.model.completeness import EventLoss, behind_losses
from rtolap.model.cube import Schema

READ_TIMEOUT_S = 120.0  # without progress; then the job is given up and tried again later


def aligned(
    schema: Schema, state: LocalState, view: CubeView, valid_partitions: Collection[int]
) -> LocalState:
    """Return the state with its tables classified by the records' vectors.

    Tables that are purged or covered are dropped, and those of the next revision's time that no record
    counts: a replica that heard of the revision before it read them has none. So is all state of partitions
    that are not in `valid_partitions`: their positions go with their events.

    Raises Unavailable where a segment with local data is settled and its vectors cannot be read.
    """
    drop_late = schema.cube.late.policy == "drop"
    horizon_ms = view.control.horizon_ms
    window_ms = schema.cube.segment.window_ms
    local = [s for s in state.segments if horizon_ms is None or s + window_ms > horizon_ms]
    records = view.with_local(local)
    vectors = {start: vectors_of(record, drop_late=drop_late) for start, record in records.items()}
    changed: dict[int, LocalSegment] = {}
    until_ms = None if schema.cube.revision is None else schema.cube.revision.until_ms
    for start, segment in state.segments.items():
        is_purged = horizon_ms is not None and start + window_ms <= horizon_ms
        is_of_next = until_ms is not None and start >= until_ms and start not in records
        if is_purged or is_of_next:
            changed[start] = LocalSegment(start)
        else:
            known = vectors.get(start, vectors_of(None, drop_late=drop_late))
            changed[start] = realigned(segment, known, valid_partitions)
    return replace(
        state,
        positions={p: o for p, o in state.positions.items() if p in valid_partitions},
        epochs={p: known for p, known in state.epochs.items() if p in valid_partitions},
        void={p: known for p, known in state.void.items() if p in valid_partitions},
        vectors=vectors,
        settled=view.settled,
        horizon_ms=horizon_ms,
        assignment_epoch=view.control.assignment_epoch,
    ).with_segments(changed)


def exchanged(
    schema: Schema,
    state: LocalState,
    start_ms: int,
    old: Collection[LocalTable],
    new: Sequence[LocalTable],
    valid_partitions: Collection[int],
) -> LocalState | None:
    """Return tables of a segment by others of the same events; None when `old` has changed meanwhile."""
    segment = state.segments.get(start_ms)
    after = substituted(segment, list(old), new) if segment is not None else None
    if after is None:
        return None
    no_record = vectors_of(None, drop_late=schema.cube.late.policy == "drop")
    vectors = state.vectors.get(start_ms, no_record)
    return state.with_segments({start_ms: realigned(after, vectors, valid_partitions)})


@dataclass(frozen=True)
class RealignJob:
    start_ms: int
    table: LocalTable
    pieces: tuple[VersionedRange, ...]


def realign_job(state: LocalState, valid_partitions: Collection[int]) -> RealignJob | None:
    """Return a job for the first table that straddles; None where no table does.

    Tables that keep a segment from answering go first. Rows of partitions that are not in `valid_partitions`
    (see `CubeReceiver.valid_partitions`) are left out.
    """
    waiting = [(s, t) for s, segment in state.segments.items() for t in segment.tables if t.straddles]
    if not waiting:
        return None
    start_ms, table = min(waiting, key=lambda one: (not one[1].unsettled, one[0]))
    vectors = state.vectors.get(start_ms, NO_VECTORS)
    return RealignJob(start_ms, table, pieces(vectors, table.ranges, valid_partitions, table.cuts))


class RangeReader:
    """`open_consumer` gives a consumer of the table's topic, with create times, for this use alone.
    `confirm_topic`: see `CubeReceiver.confirm_topic`; called when a range is read."""

    def __init__(
        self,
        schema: Schema,
        open_consumer: Callable[[], StreamConsumer],
        clock: Clock,
        records_max: int,
        confirm_topic: Callable[[], None],
        registries: Registries = no_registries,
    ) -> None:
        self._schema = schema
        self._open = open_consumer
        self._clock = clock
        self._records_max = records_max
        self._confirm_topic = confirm_topic
        self._decoder = EventDecoder(schema, registries)

    def read(
        self, start_ms: int, wanted: Sequence[VersionedRange], losses: Sequence[EventLoss] = ()
    ) -> tuple[LocalTable, ...]:
        """Read a table for each version, in ascending order. Versions without events have none.

        Pieces of version 0 are left out, and so are offsets that were accepted as lost.

        OffsetsGone: retention took the range. TopicRecreated: the offsets belong to a topic that is gone.
        Unavailable: the broker returns nothing, or a schema registry does not answer.
        """
        versioned = [piece for piece in wanted if piece.version]
        ends: dict[int, int] = {}
        begins: dict[int, int] = {}
        for piece in versioned:
            ends[piece.partition] = max(ends.get(piece.partition, 0), piece.end)
            begins[piece.partition] = min(begins.get(piece.partition, piece.start), piece.start)
        tables_by_version: dict[int, list[LocalTable]] = {}
        consumer = self._open()
        try:
            consumer.assign({part: behind_losses(losses, part, begin) for part, begin in begins.items()})
            deadline_s = self._clock.monotonic_s() + READ_TIMEOUT_S
            while any(consumer.position()[part] < end for part, end in ends.items()):
                batch = consumer.poll(self._records_max, 0.2)
                if len(batch):
                    deadline_s = self._clock.monotonic_s() + READ_TIMEOUT_S
                    decoded = decode_batch(self._decoder, batch, self._clock.now_ms())
                    for table in self._cut(start_ms, versioned, decoded.table):
                        tables_by_version.setdefault(table.version, []).append(table)
                elif self._clock.monotonic_s() > deadline_s:
                    raise Unavailable(
                        f"{consumer.topic} gave no record of a range to be read again",
                        found=consumer.broker_error,
                        action="it is tried again",
                    )
        except OffsetsGone:
            self._confirm_topic()
            raise
        finally:
            consumer.close()
        self._confirm_topic()
        return tuple(self._one(tables) for _, tables in sorted(tables_by_version.items()))

    def _cut(self, start_ms: int, versioned: Sequence[VersionedRange], events: pa.Table) -> list[LocalTable]:
        if not events.num_rows:
            return []
        window_ms = self._schema.cube.segment.window_ms
        event_ms = events.column(EVENT_MS).to_numpy()
        partition, offset = events.column(PARTITION).to_numpy(), events.column(OFFSET).to_numpy()
        inside = event_ms // window_ms * window_ms == start_ms
        cut_tables: list[LocalTable] = []
        for piece in versioned:
            mask = inside & (partition == piece.partition) & (offset >= piece.start) & (offset < piece.end)
            at = np.flatnonzero(mask)
            if not len(at):
                continue
            table = aggregate_events(self._schema, events.filter(pa.array(mask)))[start_ms]
            ranges = {piece.partition: (int(offset[at].min()), int(offset[at].max()) + 1)}
            cut_tables.append(LocalTable(table, sum_of_rows(table), ranges, (piece.version,)))
        return cut_tables

    def _one(self, tables: Sequence[LocalTable]) -> LocalTable:
        if len(tables) == 1:
            return tables[0]
        return LocalTable(
            table=merge_tables(self._schema, [table.table for table in tables]),
            events=sum(table.events for table in tables),
            ranges=union(table.ranges for table in tables),
            versions=tables[0].versions,
        )
