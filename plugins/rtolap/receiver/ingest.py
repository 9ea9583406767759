"""The core of one cube in a receiver. Single-threaded: whoever owns it calls `step`, nobody else changes it.

A step
  1. aligns the local state with the records, drops what history has taken over,
  2. follows the assignment, the pause switch and its own limits,
  3. polls what has arrived, decodes, ranks, aggregates and swaps one new state in,
  4. writes a checkpoint when rows, bytes or time ask for it.

Other threads read `state` (one reference, immutable). Work that takes long (realigning, merging fragments,
uploading) is handed out as values and comes back through `apply_realigned` and `apply_merged`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from rtolap.base.clock import Clock
from rtolap.base.errors import Corrupted, NotFound, RtolapError
from rtolap.format.aggregate import merge_tables
from rtolap.format.fragment import delete_fragment
from rtolap.metadata.records import SegmentRecord
from rtolap.model.cube import Schema
from rtolap.model.offsets import Offsets
from rtolap.receiver import closing, dead_letters, fragments
from rtolap.receiver.align import vectors_of
from rtolap.receiver.batch import batch_tables
from rtolap.receiver.checkpoint import Checkpoint, CheckpointFile, entries
from rtolap.receiver.limits import Limits
from rtolap.receiver.progress import Progress
from rtolap.receiver.settings import ReceiverSettings
from rtolap.receiver.states import READING, ConsumerEvent, ConsumerState, transition
from rtolap.receiver.tables import LocalSegment, LocalState, LocalTable, appended, realigned, substituted
from rtolap.receiver.view import CubeView
from rtolap.stream.consumer import Batch, OffsetsGone, StreamConsumer, StreamProducer
from rtolap.stream.decode import EventDecoder

log = logging.getLogger(__name__)

DEAD_LETTERS_FLUSH_S = 30.0
LOG_END_EVERY_S = 1.0


class CubeReceiver:
    def __init__(
        self,
        schema: Schema,
        *,
        replica_set: str,
        consumer: StreamConsumer,
        producer: StreamProducer,
        folder: Path,
        clock: Clock,
        settings: ReceiverSettings,
        ends_beside: bool = False,
    ) -> None:
        """`ends_beside`: somebody calls `look_up_log_ends` every LOG_END_EVERY_S, from a thread beside."""
        self.schema = schema
        self.settings = settings
        self.state = LocalState()
        self.consumer_state = ConsumerState.STOPPED
        self.reason = ""
        self.file = CheckpointFile(folder)
        self.progress = Progress(settings.idle_after_s)
        self.force: set[int] = set()
        self.checkpointed: Offsets = {}
        self.epoch = 0
        self._limits = Limits(settings, self.file.folder, clock)
        self._replica_set = replica_set
        self._consumer = consumer
        self._producer = producer
        self._clock = clock
        self._decoder = EventDecoder(schema)
        self._merge = partial(merge_tables, schema)
        self._drop_late = schema.cube.late.policy == "drop"
        self._view = CubeView()
        self._aligned_records: Mapping[int, SegmentRecord] | None = None  # compared by identity
        self._aligned_basis: tuple[int | None, int] = (None, 0)
        self._recovered: Offsets | None = None
        self._assigned: frozenset[int] = frozenset()
        self._files: set[str] = set()
        self._dirty = False
        self._close_epoch = 0
        self._asked_to_pause = False
        self._saved_at_s = clock.monotonic_s()
        self._ends_beside = ends_beside
        self._ends_at_s = float("-inf")

    # -- the step ---------------------------------------------------------------------------------------

    def step(self, view: CubeView, timeout_s: float = 0.0) -> bool:
        """True if records were read. Errors that make going on wrong end in state FAILED, not in a raise."""
        self._view = view
        if view.control.assignment_epoch == 0:
            return False  # nothing was ever assigned, or the cube is gone
        if self.consumer_state is ConsumerState.FAILED:
            self._align(view)
            return False
        try:
            if self._recovered is None:
                self._recover()
            self._align(view)
            if self._limits.flush_due:
                self._try_checkpoint()
            self._follow(view)
            if self.consumer_state not in READING:
                return False
            worked = self._consume(timeout_s)
            self._checkpoint_if_due()
        except (NotFound, OffsetsGone, Corrupted) as error:
            self._fail(error)
            return False
        return worked

    def fail(self, error: RtolapError) -> None:
        """Work beside the core has found that going on would be wrong."""
        if self.consumer_state is not ConsumerState.FAILED:
            self._fail(error)

    def restart(self) -> None:
        """After the cause of a failure is mended: go on from the position it stopped at."""
        if self.consumer_state is ConsumerState.FAILED:
            self.consumer_state = ConsumerState.STOPPED
            self.reason = ""
            self._assigned = frozenset()

    def pause(self, asked: bool) -> None:
        """The local switch, beside the cube's own."""
        self._asked_to_pause = asked

    @property
    def owned(self) -> frozenset[int]:
        return frozenset(self._view.control.assignment.get(self._replica_set, ()))

    @property
    def held(self) -> frozenset[int]:
        """Owned partitions of which everything between history and a known position is here.

        A partition that was given away and comes back is owned, but not held, before it is started anew:
        what a table still has of it from before is void.
        """
        return self.owned & {*self.state.positions, *(self._recovered or ())}

    @property
    def assignment_epoch(self) -> int:
        """Of the assignment that this core follows."""
        return self._view.control.assignment_epoch

    def close(self) -> None:
        self._consumer.close()

    # -- alignment --------------------------------------------------------------------------------------

    def _align(self, view: CubeView) -> None:
        horizon_ms = view.control.horizon_ms
        basis = (horizon_ms, view.control.assignment_epoch)
        if view.records is self._aligned_records and basis == self._aligned_basis:
            return
        vectors = {s: vectors_of(r, drop_late=self._drop_late) for s, r in view.records.items()}
        window_ms = self.schema.cube.segment.window_ms
        owned = self.owned
        # What is said of a partition is forgotten as a whole: its position with its events and counters.
        positions = {p: o for p, o in self.state.positions.items() if p in owned}
        if self._recovered is not None:
            self._recovered = {p: o for p, o in self._recovered.items() if p in owned}
            self.progress.keep_only(owned)
        held = self.held
        changed: dict[int, LocalSegment] = {}
        for start, segment in self.state.segments.items():
            if horizon_ms is not None and start + window_ms <= horizon_ms:
                changed[start] = LocalSegment(start)
            else:
                known = vectors.get(start, vectors_of(None, drop_late=self._drop_late))
                changed[start] = realigned(segment, known, held)
        state = replace(
            self.state,
            positions=positions,
            vectors=vectors,
            horizon_ms=horizon_ms,
            assignment_epoch=view.control.assignment_epoch,
        )
        state = state.with_segments(changed)
        self._dirty |= len(list(state.tables())) < len(list(self.state.tables()))  # frees what was dropped
        self._swap(state)
        self._aligned_records, self._aligned_basis = view.records, basis

    def _swap(self, state: LocalState) -> None:
        self.state = state
        self.epoch += 1

    # -- assignment and pauses --------------------------------------------------------------------------

    def _recover(self) -> None:
        checkpoint = self.file.load()
        if checkpoint is None:
            self.file.clean(set())
            self._recovered = {}
            return
        self._files = {entry.name for entry in checkpoint.fragments}
        self.file.clean(self._files)
        segments = self.file.recover(checkpoint)
        self.progress.recover(checkpoint)
        self.checkpointed = dict(checkpoint.positions)
        self._recovered = dict(checkpoint.positions)
        self.state = LocalState(segments=segments)
        self._aligned_records = None

    def _follow(self, view: CubeView) -> None:
        control = view.control
        owned = self.owned if control.enabled else frozenset[int]()
        known = {**(self._recovered or {}), **self.state.positions}
        ready = owned & {*known, *self._startable(owned - set(known), view.start_offsets)}
        if ready != self._assigned or (ready and self.consumer_state is ConsumerState.STOPPED):
            self._assign(ready, known, view.start_offsets)
        if control.close_epoch > self._close_epoch:
            self._close_epoch = control.close_epoch
            self.force.update(self._late_before(control.close_before_ms))
        if self.consumer_state is ConsumerState.STOPPED:
            return
        self._limits.look(self.state, self.schema, self._view.records)
        reason = (
            "paused for the cube"
            if control.paused
            else "paused here"
            if self._asked_to_pause
            else self._limits.reason
        )
        if reason is not None and self.consumer_state in READING:
            self._consumer.pause()
            self._to(ConsumerEvent.PAUSE)
        elif reason is None and self.consumer_state is ConsumerState.PAUSED:
            self._consumer.resume()
            self._to(ConsumerEvent.RESUME)
        self.reason = reason or self._consumer.broker_trouble or ""

    def _startable(self, fresh: frozenset[int], start_offsets: Offsets) -> set[int]:
        """Not while a table has events of an earlier stay: they would be read a second time beside it."""
        if not fresh:
            return set()
        left_over = {p for table in self.state.tables() for p in table.ranges}
        return {p for p in fresh if p in start_offsets and p not in left_over}

    def _late_before(self, before_ms: int | None) -> set[int]:
        """Segments with a late delta that a new forced closing asks for."""
        window_ms = self.schema.cube.segment.window_ms
        return {
            start
            for start in self.state.segments
            if before_ms is not None and start + window_ms <= before_ms and self.state.version(start) > 0
        }

    def _assign(self, ready: frozenset[int], known: Offsets, start_offsets: Offsets) -> None:
        """Positions known here go on where they are; history may be further than a checkpoint."""
        offsets = {p: max(known.get(p, 0), start_offsets.get(p, 0)) for p in sorted(ready)}
        added = bool(set(offsets) - set(known))
        self._consumer.assign(offsets)
        self._assigned = ready
        self.progress.assigned(offsets, self._clock.monotonic_s())
        self._recovered = known
        self._swap(replace(self.state, positions=offsets))
        if offsets and self.consumer_state is ConsumerState.STOPPED:
            self._to(ConsumerEvent.START)
        elif added and self.consumer_state is ConsumerState.CONSUMING:
            self._to(ConsumerEvent.START)  # what is behind the log's end is not silent
        elif not offsets and self.consumer_state is not ConsumerState.STOPPED:
            self._to(ConsumerEvent.STOP)

    def _to(self, event: ConsumerEvent) -> None:
        self.consumer_state = transition(self.consumer_state, event, subject=f"cube {self.schema.cube.name}")

    def _fail(self, error: RtolapError) -> None:
        log.error("cube %s stops: %s", self.schema.cube.name, error)
        self._to(ConsumerEvent.FAIL)
        self.reason = str(error)

    # -- consuming --------------------------------------------------------------------------------------

    def _consume(self, timeout_s: float) -> bool:
        batch = self._consumer.poll(self.settings.batch_records_max, timeout_s)
        if len(batch):
            try:
                self._take(batch)
            except Exception:
                # The consumer is past the batch and the state is not: assigned anew, it reads it again.
                self._assigned = frozenset()
                raise
        else:
            positions = self._consumer.position()
            if positions != self.state.positions:
                self._swap(replace(self.state, positions=positions))
        self._look_at_ends()
        return bool(len(batch))

    def _take(self, batch: Batch) -> None:
        """Nothing of a batch is visible before all of it is: one swap."""
        decoded = self._decoder.decode(
            batch.values,
            batch.partitions,
            batch.offsets,
            now_ms=self._clock.now_ms(),
            create_ms=batch.create_ms,
        )
        if len(decoded.rejects):
            table = self.schema.table
            dead_letters.send(self._producer, table.topic, table.dead_letter_topic, batch, decoded.rejects)
            for index, reason in zip(decoded.rejects.index.tolist(), decoded.rejects.reason, strict=True):
                self.progress.refused(int(batch.partitions[index]), reason)
        added = batch_tables(self.schema, decoded.table, self.state.vectors, self.state.horizon_ms)
        changed = {
            start: appended(self.state.segments.get(start, LocalSegment(start)), tables, self._merge)
            for start, tables in added.tables.items()
        }
        state = replace(self.state, positions=self._consumer.position())
        self._swap(state.with_segments(changed))
        self._dirty = True
        self.progress.took(added, self._clock.monotonic_s())

    def _look_at_ends(self) -> None:
        """Log ends are looked up now and then: they tell idle from late, and a replay from the present."""
        now_s = self._clock.monotonic_s()
        if not self._ends_beside and now_s - self._ends_at_s >= LOG_END_EVERY_S:
            self._ends_at_s = now_s
            self.look_up_log_ends()
        positions = self.state.positions
        if self.consumer_state is ConsumerState.REPLAYING and all(
            self.progress.at_end(positions, p) for p in positions
        ):
            self._to(ConsumerEvent.CAUGHT_UP)

    def look_up_log_ends(self) -> None:
        """Asks Kafka: tens of milliseconds, during which a core that asks itself does not consume."""
        try:
            self.progress.log_ends = {p: self._consumer.log_range(p, 1.0).end for p in self.state.positions}
        except RtolapError as error:
            self.progress.log_ends = {}
            self.reason = str(error)

    # -- checkpoints ------------------------------------------------------------------------------------

    def _checkpoint_if_due(self) -> None:
        settings = self.settings
        waited_s = self._clock.monotonic_s() - self._saved_at_s
        memory = [table for table in self.state.tables() if table.in_memory]
        full = sum(table.rows for table in memory) >= settings.flush_rows
        full = full or sum(table.nbytes for table in memory) >= settings.flush_bytes
        if full or (self._dirty and waited_s >= settings.checkpoint_interval_s):
            self._try_checkpoint()

    def _try_checkpoint(self) -> None:
        try:
            self.checkpoint()
        except (OSError, RtolapError) as error:
            log.error("cube %s: checkpoint failed: %s", self.schema.cube.name, error)
            self._limits.flush_failed(error)

    def checkpoint(self) -> None:
        """The order and what a crash leaves behind: see `receiver.checkpoint`."""
        if self._recovered is None:
            return  # the checkpoint on disk still stands for everything
        self._producer.flush(DEAD_LETTERS_FLUSH_S)
        segments = fragments.flushed(self.schema, self.file.fragments, self.state)
        named = entries(segments)
        positions = {**self._recovered, **self.state.positions}
        self.file.save(
            Checkpoint(
                cube=self.schema.cube.name,
                positions=positions,
                fragments=named,
                counters=dict(self.progress.counters),
                mark_ms=self.progress.mark_ms,
                arrivals=self.progress.arrivals(),
                saved_ms=self._clock.now_ms(),
            )
        )
        self._swap(replace(self.state, segments=segments))
        self.checkpointed = positions
        names = {entry.name for entry in named}
        for gone in self._files - names:
            delete_fragment(self.file.fragments, gone)
        self._files = names
        self._dirty = False
        self._saved_at_s = self._clock.monotonic_s()
        self._limits.flush_worked()

    def replay_from(self) -> Offsets:
        """Per partition the smallest offset that is not in history, as of the last checkpoint."""
        found = {p: o for p, o in self.checkpointed.items() if p in self.state.positions}
        for table in self.state.tables():
            for part, (start, _) in table.ranges.items():
                if part in found:
                    found[part] = min(found[part], start)
        return found

    # -- what comes back from beside --------------------------------------------------------------------

    def apply_realigned(
        self, start_ms: int, old: Collection[LocalTable], new: tuple[LocalTable, ...]
    ) -> bool:
        """Swap a re-read table in; False when it is void, because `old` changed meanwhile."""
        return self._substitute(start_ms, old, new)

    def apply_merged(self, job: fragments.MergeJob, merged: LocalTable) -> bool:
        """Swap a merged fragment in; the old files go with the next checkpoint."""
        done = self._substitute(job.start_ms, job.group, (merged,))
        if merged.fragment is not None:
            self._files.add(merged.fragment.info.name)  # unnamed by the next checkpoint: deleted with it
        return done

    def _substitute(self, start_ms: int, old: Collection[LocalTable], new: tuple[LocalTable, ...]) -> bool:
        segment = self.state.segments.get(start_ms)
        after = substituted(segment, list(old), new) if segment is not None else None
        if after is None:
            return False
        vectors = self.state.vectors.get(start_ms, vectors_of(None, drop_late=self._drop_late))
        self._swap(self.state.with_segments({start_ms: realigned(after, vectors, self.held)}))
        self._dirty = True
        return True

    # -- closing ----------------------------------------------------------------------------------------

    def closings(self) -> tuple[closing.Closing, ...]:
        """What to close now, when this receiver leads. Offsets are this state's positions."""
        view, state = self._view, self.state
        if not (view.leading and view.connected and state.positions):
            return ()
        self.force = {start for start in self.force if start in state.segments or start in view.records}
        now_s = self._clock.monotonic_s()
        own = {
            p: (
                counters.watermark_ms if (counters := self.progress.counters.get(p)) is not None else None,
                self.progress.idle(state.positions, p, now_s),
            )
            for p in state.positions
        }
        return closing.decide(
            self.schema.cube,
            positions=state.positions,
            local=state.segments.keys(),
            records=view.records,
            marks=self.progress.marks(state, self._clock.now_ms()),
            low_watermark_ms=closing.low_watermark(view.low_watermark_ms, own),
            caught_up=self.consumer_state is ConsumerState.CONSUMING,
            now_ms=self._clock.now_ms(),
            force=frozenset(self.force),
            force_before_ms=view.control.close_before_ms,
        )
