"""The intake of what has arrived into the next local state: poll, decode, rank, aggregate, merge."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.base.clock import Clock
from rtolap.cubes.format.aggregate import merge_tables
from rtolap.cubes.receiver.core.dead_letters import DeadLetterWriter
from rtolap.cubes.receiver.core.partition_progress import ConsumerProgress
from rtolap.cubes.receiver.hosts.batch_progress import HostProgressBatch, heard, stated
from rtolap.cubes.receiver.local.align import vectors_of
from rtolap.cubes.receiver.local.batch import batch_tables, decode_batch, segment_starts
from rtolap.cubes.receiver.local.tables import LocalSegment, LocalState, appended
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.events.decode import Decoded, EventDecoder
from rtolap.events.formats.readers import Registries, no_registries
from rtolap.kafka.interfaces import Batch, StreamConsumer
from rtolap.model.cube import Schema
from rtolap.model.leader_epochs import continued


class RecordIntake:
    """The intake of one cube; used by the core thread only."""

    def __init__(
        self,
        schema: Schema,
        *,
        consumer: StreamConsumer,
        dead_letters: DeadLetterWriter,
        progress: ConsumerProgress,
        clock: Clock,
        settings: ReceiverSettings,
        registries: Registries = no_registries,
    ) -> None:
        self._schema = schema
        self._consumer = consumer
        self._dead_letters = dead_letters
        self._progress = progress
        self._clock = clock
        self._settings = settings
        self._decoder = EventDecoder(schema, registries)
        self._merge = partial(merge_tables, schema)
        self._ahead = False  # the consumer is past records that no state holds

    def read(self, state: LocalState, timeout_s: float) -> tuple[LocalState, bool]:
        """Return the next state, and whether records were read; the same object where nothing has changed.

        Nothing of a batch is in a state before all of it is. A batch that raises is read again.
        """
        if self._ahead:
            self._consumer.assign(dict(state.positions))
            self._ahead = False
        settings = self._settings
        batch = self._consumer.poll(settings.batch_records_max, timeout_s, bytes_max=settings.batch_bytes_max)
        if len(batch):
            self._ahead = True
            state = self._with(state, batch)
            self._ahead = False
            return state, True
        positions = self._consumer.position()
        return (state if positions == state.positions else replace(state, positions=positions)), False

    def _with(self, state: LocalState, batch: Batch) -> LocalState:
        decoded = decode_batch(self._decoder, batch, self._clock.now_ms())
        state = self._with_vectors(state, decoded.table)
        added = batch_tables(self._schema, decoded.table, state.vectors, state.horizon_ms)
        changed = {
            start: appended(state.segments.get(start, LocalSegment(start)), tables, self._merge)
            for start, tables in added.tables.items()
        }
        rejects = decoded.rejects
        if len(rejects):
            self._dead_letters.send(batch, rejects)
            self._progress.refused(batch.partitions[rejects.index], rejects.reason, rejects.detail)
        state = replace(
            state, positions=self._consumer.position(), epochs=continued(state.epochs, batch.epochs)
        ).with_segments(changed)
        heard_of = self._heard(batch, decoded)
        now_s, created_ms = self._clock.monotonic_s(), newest_created_ms(batch)
        if decoded.filtered is not None:
            self._progress.filtered(decoded.filtered, now_s, created_ms)
        self._progress.took(added, now_s, created_ms, heard_of)
        self._progress.freshness.took(batch, self._clock.now_ms(), now_s)
        return state

    def _with_vectors(self, state: LocalState, events: pa.Table) -> LocalState:
        """Return the state with the vectors of settled segments that events fall into.

        Not of those that have tables here: the record may be newer than what these are aligned with, such as
        one that was closed just now. Taken alone, its vectors would give the tables to versions that their
        events are not of, and they could be uploaded before the next alignment.

        Raises Unavailable where they cannot be read: the batch is read again.
        """
        drop_late = self._schema.cube.late.policy == "drop"
        window_ms = self._schema.cube.segment.window_ms
        fresh = {
            start: vectors_of(record, drop_late=drop_late)
            for start in segment_starts(events, window_ms)
            if start not in state.vectors
            and start not in state.segments
            and (state.horizon_ms is None or start + window_ms > state.horizon_ms)
            and (record := state.settled.record(start)) is not None
        }
        return replace(state, vectors={**state.vectors, **fresh}) if fresh else state

    def _heard(self, batch: Batch, decoded: Decoded) -> tuple[HostProgressBatch, ...]:
        """Return the host progress for a cube that closes by an application: by host, or by producer where
        records state watermarks."""
        if self._progress.hosts is None:
            return ()
        if decoded.statements is not None:
            return (stated(decoded.statements),)
        host = self._schema.table.host_column
        found = [heard(decoded.table, _created(batch, decoded.places), host)]
        if decoded.heartbeats is not None:
            beats, places = decoded.heartbeats
            found.append(heard(beats, _created(batch, places), host).without_events())
        if decoded.filtered is not None:
            left_out = decoded.filtered
            found.append(heard(left_out.events, _created(batch, left_out.places), host).without_events())
        return tuple(found)


def _created(batch: Batch, places: NDArray[np.int64]) -> NDArray[np.int64] | None:
    return None if batch.create_ms is None else batch.create_ms[places]


def newest_created_ms(batch: Batch) -> dict[int, int]:
    """Return, by partition, the newest timestamp of its records; those without one are left out."""
    if batch.create_ms is None or not len(batch):
        return {}
    newest = np.full(int(batch.partitions.max()) + 1, -1, np.int64)
    np.maximum.at(newest, batch.partitions, batch.create_ms)
    return {partition: at_ms for partition, at_ms in enumerate(newest.tolist()) if at_ms >= 0}
