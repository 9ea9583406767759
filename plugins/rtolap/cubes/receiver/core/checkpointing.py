"""Checkpoints: when one is due, what it writes, and what recovery makes of it. `checkpoint` has the order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rtolap.base.clock import Clock
from rtolap.base.errors import RtolapError
from rtolap.cubes.format.fragment import delete_fragment
from rtolap.cubes.receiver.core.dead_letters import DeadLetterWriter
from rtolap.cubes.receiver.core.limits import ConsumerLimits
from rtolap.cubes.receiver.core.partition_progress import ConsumerProgress
from rtolap.cubes.receiver.local import fragments
from rtolap.cubes.receiver.local.checkpoint import Checkpoint, CheckpointFile, entries
from rtolap.cubes.receiver.local.tables import LocalState
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.kafka.interfaces import LogTruncated, TopicMissing, TopicRecreated
from rtolap.kafka.topic_identity import TopicIdentity
from rtolap.model.cube import Schema
from rtolap.model.leader_epochs import PartitionEpochs
from rtolap.model.offsets import Offsets

DEAD_LETTERS_WAIT_S = 10.0
TOPIC_WAIT_S = 2.0
TOPIC_CHANGED = (TopicMissing, TopicRecreated, LogTruncated)


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Draft:
    """A checkpoint to be written, all of one moment.

    Attributes:
        files: files that may be deleted once the checkpoint is written.
        before_s: time at which the previous checkpoint was drafted.
    """

    state: LocalState
    checkpoint: Checkpoint
    files: frozenset[str]
    before_s: float


@dataclass(frozen=True)
class WrittenCheckpoint:
    """A checkpoint that is on disk."""

    draft: Draft
    flushed: Sequence[fragments.Flushed]
    named: frozenset[str]


class Checkpoints:
    """The checkpoints of one cube; owned by the core thread, but for `write_out`.

    known     positions of partitions that are not assigned at present too; None before recovery
    epochs    leader epochs of what was read up to them
    written   positions of the last checkpoint
    dirty     the state has changed since
    """

    def __init__(
        self,
        schema: Schema,
        folder: Path,
        dead_letters: DeadLetterWriter,
        settings: ReceiverSettings,
        clock: Clock,
        topic: TopicIdentity,
    ) -> None:
        self.file = CheckpointFile(folder)
        self.known: Offsets | None = None
        self.epochs: PartitionEpochs = {}
        self.written: Offsets = {}
        self.dirty = False
        self._schema = schema
        self._dead_letters = dead_letters
        self._settings = settings
        self._clock = clock
        self._topic = topic
        self._files: frozenset[str] = frozenset()
        self._saved_at_s = clock.monotonic_s()

    def recover(self, progress: ConsumerProgress) -> LocalState:
        """Return the state of the last checkpoint, not aligned yet. Raises Corrupted or NotFound."""
        checkpoint = self.file.load()
        if checkpoint is None:
            self.file.clean(set())
            self.known = {}
            return LocalState()
        self._files = frozenset(entry.name for entry in checkpoint.fragments)
        self.file.clean(set(self._files))
        segments = self.file.recover(checkpoint, self._schema)
        progress.recover(checkpoint)
        self._topic.expect(checkpoint.topic_id)
        self.written = dict(checkpoint.positions)
        self.known = dict(checkpoint.positions)
        self.epochs = dict(checkpoint.epochs)
        return LocalState(segments=segments, void=checkpoint.void)

    def due(self, state: LocalState) -> bool:
        """Return True if rows, bytes or time require a checkpoint.

        Rows that are being written do not count.
        """
        settings = self._settings
        memory = [table for table in state.tables() if table.in_memory and not table.sealed]
        if sum(table.rows for table in memory) >= settings.flush_rows:
            return True
        if sum(table.nbytes for table in memory) >= settings.flush_bytes:
            return True
        waited_s = self._clock.monotonic_s() - self._saved_at_s
        return self.dirty and waited_s >= settings.checkpoint_interval_s

    def draft(self, state: LocalState, progress: ConsumerProgress) -> Draft:
        """Draft a checkpoint. Raises Refused, NotFound or Unavailable where dead letters cannot be
        delivered."""
        assert self.known is not None, "before recovery, the checkpoint on disk stands for everything"
        self._dead_letters.settle(DEAD_LETTERS_WAIT_S)
        checkpoint = Checkpoint(
            cube=self._schema.cube.name,
            positions={**self.known, **state.positions},
            epochs={**{p: e for p, e in self.epochs.items() if p in self.known}, **state.epochs},
            void=dict(state.void),
            counters=dict(progress.counters),
            mark_ms=progress.mark_ms,
            arrivals=progress.arrivals(),
            hosts=progress.saved_hosts(),
            saved_ms=self._clock.now_ms(),
        )
        before_s, self._saved_at_s = self._saved_at_s, self._clock.monotonic_s()
        self.dirty = False
        return Draft(fragments.sealed(state), checkpoint, self._files, before_s)

    def abandon(self, draft: Draft) -> None:
        """Abandon a draft that could not be written. The next checkpoint saves its contents."""
        self.dirty = True
        self._saved_at_s = draft.before_s

    def write_out(self, draft: Draft) -> WrittenCheckpoint:
        """Write a draft, on any thread, but only one draft at a time.

        OSError: the disk. Unavailable: the topic is not known to be the same. TopicMissing, TopicRecreated:
        it is not.
        """
        topic_id = self._topic.confirm_reads(TOPIC_WAIT_S)
        flushed = fragments.flush(self._schema, self.file.fragments, draft.state)
        entries_ = entries(fragments.with_flushed(draft.state, flushed).segments)
        self.file.save(msgspec.structs.replace(draft.checkpoint, fragments=entries_, topic_id=topic_id))
        named = frozenset(entry.name for entry in entries_)
        for gone in draft.files - named:
            delete_fragment(self.file.fragments, gone)
        return WrittenCheckpoint(draft, flushed, named)

    def finish(self, state: LocalState, written: WrittenCheckpoint) -> LocalState:
        """Return the state with fragments for what was written out."""
        self.written = dict(written.draft.checkpoint.positions)
        self._files = (self._files - written.draft.files) | written.named
        return fragments.with_flushed(state, written.flushed)

    def adopt(self, name: str) -> None:
        """Adopt a fragment that was written beside. The next checkpoint deletes it unless it names it."""
        self._files |= {name}

    def lower(self, offsets: Offsets, state: LocalState) -> None:
        """Lower positions to where logs diverge. `state` has dropped what was read beyond."""
        known = self.known or {}
        self.known = {p: min(at, offsets.get(p, at)) for p, at in known.items()}
        self.epochs = {**{p: epoch for p, epoch in self.epochs.items() if p not in offsets}, **state.epochs}
        self.dirty = True

    def replay_from(self, state: LocalState) -> Offsets:
        """Return, per partition, the smallest offset that is not in history, as of the last checkpoint."""
        offsets = {p: o for p, o in self.written.items() if p in state.positions}
        for table in state.tables():
            for part, (start, _) in table.ranges.items():
                if part in offsets:
                    offsets[part] = min(offsets[part], start)
        return offsets


@dataclass(eq=False)
class Persisting:
    """The persistence of one cube's state; used by the core thread only. `beside`: one thread on which
    checkpoints that are due are written out; None: the step itself writes them."""

    cube: str
    checkpoints: Checkpoints
    dead_letters: DeadLetterWriter
    limits: ConsumerLimits
    beside: Executor | None = None
    _underway: Future[WrittenCheckpoint] | None = field(default=None, init=False)
    _draft: Draft | None = field(default=None, init=False)

    def look_at_dead_letters(self) -> None:
        """Pause the consumer when Kafka refuses dead letters, without waiting for the next checkpoint."""
        self.dead_letters.poll()
        if not self.limits.flush_failing and (delivery_error := self.dead_letters.delivery_error) is not None:
            self.limits.flush_failed(delivery_error)

    def take_over(self, state: LocalState) -> LocalState:
        """Return the state with what was written out beside by now. Raises TopicMissing, TopicRecreated."""
        if self._underway is None or not self._underway.done():
            return state
        return self._attempt(state, lambda: self._finished(state))

    def again_if_due(self, state: LocalState, progress: ConsumerProgress) -> LocalState:
        """Try again, a while after a failure. Raises TopicMissing, TopicRecreated."""
        if not self.limits.flush_due:
            return state
        return self._attempt(state, lambda: self.write(state, progress))

    def if_due(self, state: LocalState, progress: ConsumerProgress) -> LocalState:
        """Write when rows, bytes or time require it; beside the core where it may. Another one waits for it,
        which bounds what is in memory. Raises TopicMissing, TopicRecreated."""
        if not self.checkpoints.due(state):
            return state
        if self.beside is None:
            return self._attempt(state, lambda: self.write(state, progress))
        finished = self._attempt(state, lambda: self._finished(state))
        if self.limits.flush_failing:
            return finished
        return self._attempt(finished, lambda: self._begun(finished, progress))

    def write(self, state: LocalState, progress: ConsumerProgress) -> LocalState:
        """Return the state with its tables in files; the same one where the checkpoint on disk still stands
        for everything. Raises OSError, and what `Checkpoints.draft` and `write_out` raise; state and
        checkpoint then stay as they were.
        """
        if self.checkpoints.known is None:
            return state
        try:
            state = self._finished(state)  # or the older one would come after this one
        except TOPIC_CHANGED:
            raise
        except (OSError, RtolapError) as error:
            log.warning("cube %s: a checkpoint beside failed, it is written now: %s", self.cube, error)
        draft = self.checkpoints.draft(state, progress)
        try:
            written = self.checkpoints.write_out(draft)
        except BaseException:
            self.checkpoints.abandon(draft)
            raise
        self.limits.flush_worked()
        return self.checkpoints.finish(draft.state, written)

    def close(self) -> None:
        if self.beside is not None:
            self.beside.shutdown()

    def _begun(self, state: LocalState, progress: ConsumerProgress) -> LocalState:
        """Return the state whose memory is being written out beside."""
        assert self.beside is not None, "asked for by `if_due`"
        draft = self.checkpoints.draft(state, progress)
        self._underway, self._draft = self.beside.submit(self.checkpoints.write_out, draft), draft
        return draft.state

    def _finished(self, state: LocalState) -> LocalState:
        """Wait for the checkpoint that is being written beside, if any. Raises what `write_out` raises."""
        underway, self._underway = self._underway, None
        draft, self._draft = self._draft, None  # its tables would stay in memory until the next one
        if underway is None:
            return state
        try:
            written = underway.result()
        except BaseException:
            assert draft is not None, "set with `_underway`"
            self.checkpoints.abandon(draft)
            raise
        self.limits.flush_worked()
        return self.checkpoints.finish(state, written)

    def _attempt(self, state: LocalState, work: Callable[[], LocalState]) -> LocalState:
        try:
            return work()
        except TOPIC_CHANGED:
            raise  # no checkpoint will ever work: the consumer fails
        except (OSError, RtolapError) as error:
            log.error("cube %s: checkpoint failed: %s", self.cube, error)
            self.limits.flush_failed(error)
            return state
