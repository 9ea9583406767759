"""Checkpoints: when one is due, what it writes, what recovery makes of it. The order: `checkpoint`."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from rtolap.base.clock import Clock
from rtolap.base.errors import RtolapError
from rtolap.cubes.format.fragment import delete_fragment
from rtolap.cubes.receiver.dead_letters import DeadLetterWriter
from rtolap.cubes.receiver.limits import Limits
from rtolap.cubes.receiver.local import fragments
from rtolap.cubes.receiver.local.checkpoint import Checkpoint, CheckpointFile, entries
from rtolap.cubes.receiver.local.tables import LocalState
from rtolap.cubes.receiver.partition_progress import Progress
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.kafka.interfaces import TopicMissing, TopicRecreated
from rtolap.kafka.topic_identity import TopicIdentity
from rtolap.model.cube import Schema
from rtolap.model.offsets import Offsets

DEAD_LETTERS_WAIT_S = 10.0
TOPIC_WAIT_S = 2.0


class Checkpoints:
    """The checkpoints of one cube; owned by the core thread.

    known     positions of partitions that are not assigned at present too; None before recovery
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
        self.written: Offsets = {}
        self.dirty = False
        self._schema = schema
        self._dead_letters = dead_letters
        self._settings = settings
        self._clock = clock
        self._topic = topic
        self._files: set[str] = set()
        self._saved_at_s = clock.monotonic_s()

    def recover(self, progress: Progress) -> LocalState:
        """The state of the last checkpoint, not aligned yet. Raises Corrupted or NotFound."""
        checkpoint = self.file.load()
        if checkpoint is None:
            self.file.clean(set())
            self.known = {}
            return LocalState()
        self._files = {entry.name for entry in checkpoint.fragments}
        self.file.clean(self._files)
        segments = self.file.recover(checkpoint)
        progress.recover(checkpoint)
        self._topic.expect(checkpoint.topic_id)
        self.written = dict(checkpoint.positions)
        self.known = dict(checkpoint.positions)
        return LocalState(segments=segments)

    def due(self, state: LocalState) -> bool:
        settings = self._settings
        memory = [table for table in state.tables() if table.in_memory]
        if sum(table.rows for table in memory) >= settings.flush_rows:
            return True
        if sum(table.nbytes for table in memory) >= settings.flush_bytes:
            return True
        waited_s = self._clock.monotonic_s() - self._saved_at_s
        return self.dirty and waited_s >= settings.checkpoint_interval_s

    def write(self, state: LocalState, progress: Progress) -> LocalState:
        """The state with its memory on disk. The order and what a crash leaves behind: `checkpoint`.

        OSError: the disk; Refused, NotFound or Unavailable: dead dead_letters cannot be delivered, or the
        topic is not known to be the same (TopicRecreated: it is another one).
        """
        assert self.known is not None, "before recovery, the checkpoint on disk stands for everything"
        self._dead_letters.settle(DEAD_LETTERS_WAIT_S)
        topic_id = self._topic.confirm_reads(TOPIC_WAIT_S)
        segments = fragments.flushed(self._schema, self.file.fragments, state)
        named = entries(segments)
        positions = {**self.known, **state.positions}
        self.file.save(
            Checkpoint(
                cube=self._schema.cube.name,
                positions=positions,
                fragments=named,
                counters=dict(progress.counters),
                mark_ms=progress.mark_ms,
                arrivals=progress.arrivals(),
                hosts=progress.saved_hosts(),
                saved_ms=self._clock.now_ms(),
                topic_id=topic_id,
            )
        )
        self.written = positions
        self.dirty = False
        self._saved_at_s = self._clock.monotonic_s()
        before, self._files = self._files, {entry.name for entry in named}
        for gone in before - self._files:
            delete_fragment(self.file.fragments, gone)
        return replace(state, segments=segments)

    def adopt(self, name: str) -> None:
        """A fragment that came from beside: deleted with the next checkpoint, if that does not name it."""
        self._files.add(name)

    def replay_from(self, state: LocalState) -> Offsets:
        """Per partition the smallest offset that is not in history, as of the last checkpoint."""
        offsets = {p: o for p, o in self.written.items() if p in state.positions}
        for table in state.tables():
            for part, (start, _) in table.ranges.items():
                if part in offsets:
                    offsets[part] = min(offsets[part], start)
        return offsets


log = logging.getLogger(__name__)


class Persisting:
    """The persistence of one cube's state; used by the core thread only."""

    def __init__(
        self, cube: str, checkpoints: Checkpoints, dead_letters: DeadLetterWriter, limits: Limits
    ) -> None:
        self._cube = cube
        self._checkpoints = checkpoints
        self._dead_letters = dead_letters
        self._limits = limits

    def look_at_dead_letters(self) -> None:
        """Letters that Kafka will not take stop the consumer now, not at the next checkpoint."""
        self._dead_letters.poll()
        if not self._limits.flush_failing and (trouble := self._dead_letters.trouble) is not None:
            self._limits.flush_failed(trouble)

    def again_if_due(self, state: LocalState, progress: Progress) -> LocalState:
        """Another try, a while after one has failed. Raises TopicMissing, TopicRecreated."""
        return self._attempt(state, progress) if self._limits.flush_due else state

    def if_due(self, state: LocalState, progress: Progress) -> LocalState:
        """Write when rows, bytes or time require it. Raises TopicMissing, TopicRecreated."""
        return self._attempt(state, progress) if self._checkpoints.due(state) else state

    def write(self, state: LocalState, progress: Progress) -> LocalState:
        """The state with its tables in files; the same one where the checkpoint on disk still stands for
        everything. Raises what `Checkpoints.write` raises; state and checkpoint then stay as they were."""
        if self._checkpoints.known is None:
            return state
        written = self._checkpoints.write(state, progress)
        self._limits.flush_worked()
        return written

    def _attempt(self, state: LocalState, progress: Progress) -> LocalState:
        try:
            return self.write(state, progress)
        except (TopicMissing, TopicRecreated):
            raise  # no checkpoint will ever work: the consumer fails
        except (OSError, RtolapError) as error:
            log.error("cube %s: checkpoint failed: %s", self._cube, error)
            self._limits.flush_failed(error)
            return state
