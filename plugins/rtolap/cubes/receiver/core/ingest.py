"""The core of one cube in a receiver. Single-threaded: its owner calls `step`, and no other thread changes
it.

A step
  1. aligns the local state with the records, drops what history has taken over,
  2. follows the assignment, the pause switch and its own limits,
  3. polls what has arrived, decodes, ranks, aggregates and swaps one new state in,
  4. has a checkpoint written when rows, bytes or time require it, and takes over one that was written beside.

Other threads read `state` (one reference, immutable). Work that takes long (realigning, merging fragments,
uploading) is handed out as values and comes back through `apply_realigned` and `apply_merged`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from pathlib import Path

from rtolap.base.clock import Clock
from rtolap.base.errors import Corrupted, NotFound, RtolapError
from rtolap.cubes.receiver.closing_rules import SegmentClosing
from rtolap.cubes.receiver.core import closing_candidates as closings
from rtolap.cubes.receiver.core.alignment import Alignment
from rtolap.cubes.receiver.core.assignment import FollowedAssignment
from rtolap.cubes.receiver.core.checkpointing import TOPIC_WAIT_S, Checkpoints, Persisting
from rtolap.cubes.receiver.core.dead_letters import DeadLetterWriter
from rtolap.cubes.receiver.core.freed_memory import FreedMemory
from rtolap.cubes.receiver.core.intake import RecordIntake
from rtolap.cubes.receiver.core.limits import ConsumerLimits
from rtolap.cubes.receiver.core.log_comparison import LogComparison
from rtolap.cubes.receiver.core.partition_progress import ConsumerProgress
from rtolap.cubes.receiver.core.pauses import Pauses
from rtolap.cubes.receiver.core.promises import Promises
from rtolap.cubes.receiver.core.topic_watch import LostOffsets, TopicWatch
from rtolap.cubes.receiver.hosts.host_progress import HostProgress
from rtolap.cubes.receiver.local.checkpoint import CheckpointFile
from rtolap.cubes.receiver.local.cut_logs import without_cut
from rtolap.cubes.receiver.local.fragments import MergeJob
from rtolap.cubes.receiver.local.realign import exchanged
from rtolap.cubes.receiver.local.tables import LocalState, LocalTable
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.states import ConsumerEvent, ConsumerLifecycle, ConsumerState
from rtolap.cubes.receiver.views import CubeView
from rtolap.events.formats.readers import Registries, no_registries
from rtolap.kafka.interfaces import (
    LogTruncated,
    OffsetsGone,
    StreamConsumer,
    StreamProducer,
    TopicRecreated,
)
from rtolap.kafka.topic_identity import CUBE_ACTION, TopicIdentity
from rtolap.metadata.records import CubeControl
from rtolap.model.cube import Schema
from rtolap.model.offsets import Offsets, PartRange

log = logging.getLogger(__name__)


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
        create_dead_letter_topic: Callable[[], object] | None = None,
        flush_beside: Executor | None = None,
        registries: Registries = no_registries,
    ) -> None:
        """Take the parts of a cube's receiver. `ends_beside`: see `topic_watch`; `create_dead_letter_topic`:
        see `dead_letters`; `flush_beside`: one thread, ended with the core, on which checkpoints are
        written out (see `checkpointing`); `registries`: see `readers.record_reader`."""
        table = schema.table
        self.schema = schema
        self.settings = settings
        self.state = LocalState()
        hosts = HostProgress() if schema.cube.watermark is not None else None
        self.progress = ConsumerProgress(settings.idle_after_s, hosts)
        self.force: set[int] = set()
        self.epoch = 0
        dead_letters = DeadLetterWriter(
            producer, table.topic, table.dead_letter_topic, create_dead_letter_topic
        )
        self._logs = LogComparison(schema, consumer)
        self._topic = TopicIdentity(
            table.topic, consumer.topic_id, action=CUBE_ACTION, check_log=self._compare_with_log
        )
        self.lowered: Offsets = {}  # where history may no longer be said to begin later; see `BackgroundWork`
        self._checkpoints = Checkpoints(schema, folder, dead_letters, settings, clock, self._topic)
        self._life = ConsumerLifecycle(schema.cube.name, consumer)
        limits = ConsumerLimits(settings, folder, clock)
        self._pauses = Pauses(schema, self._life, limits, clock)
        self._promises = Promises()
        self._behind: Offsets = {}
        self._lost = LostOffsets(consumer)
        self._persisting = Persisting(schema.cube.name, self._checkpoints, dead_letters, limits, flush_beside)
        self._replica_set = replica_set
        self._consumer = consumer
        self._clock = clock
        self._view = CubeView()
        self._alignment = Alignment(schema)
        self._close_epoch = 0
        self._watch = TopicWatch(consumer, self._topic, self.progress, clock, beside=ends_beside)
        self._assignment = FollowedAssignment(
            consumer=consumer,
            life=self._life,
            progress=self.progress,
            checkpoints=self._checkpoints,
            clock=clock,
        )
        self._intake = RecordIntake(
            schema,
            consumer=consumer,
            dead_letters=dead_letters,
            progress=self.progress,
            clock=clock,
            settings=settings,
            registries=registries,
        )
        self._freed = FreedMemory(clock)

    # -- what others see of it --------------------------------------------------------------------------

    @property
    def consumer_state(self) -> ConsumerState:
        return self._life.state

    @property
    def reason(self) -> str:
        """Return why it does not consume, or its present problem; empty when all is well."""
        return self._life.reason

    @property
    def lost(self) -> tuple[PartRange, ...]:
        """Return the offsets to read that Kafka no longer holds: the consumer is FAILED for them."""
        return self._lost.ranges

    @property
    def file(self) -> CheckpointFile:
        return self._checkpoints.file

    @property
    def checkpointed(self) -> Offsets:
        return self._checkpoints.written

    @property
    def control(self) -> CubeControl:
        """Return the control record that this core follows."""
        return self._view.control

    @property
    def owned(self) -> frozenset[int]:
        return frozenset(self._view.control.assignment.get(self._replica_set, ()))

    @property
    def valid_partitions(self) -> frozenset[int]:
        """Return the owned partitions whose events from history to a known position are all here.

        A partition that was given away and comes back is owned, but not valid, until it is restarted: rows
        that a table still has of it are void.
        """
        return self.owned & {*self.state.positions, *(self._checkpoints.known or ())}

    @property
    def assignment_epoch(self) -> int:
        """Return the epoch of the assignment that this core follows."""
        return self._view.control.assignment_epoch

    @property
    def behind(self) -> Offsets:
        """Return, by partition, promised offsets that its position has not reached."""
        return self._behind

    @property
    def paused_since_ms(self) -> int | None:
        """Return the time at which the consumer stopped reading all that arrives; None while it reads."""
        return self._pauses.since_ms

    def promise(self, at_least: Offsets) -> None:
        """Note positions that an earlier answer reached and a client waits for. For any thread."""
        self._promises.note(at_least)

    # -- the step ---------------------------------------------------------------------------------------

    def step(self, view: CubeView, timeout_s: float = 0.0) -> bool:
        """Return True if records were read.

        Errors that make going on wrong end in state FAILED, not in a raise; what is raised stands in
        `reason`, and the next step tries again.
        """
        self._view = view
        if view.control.assignment_epoch == 0:
            return False  # nothing was ever assigned, or the cube is gone
        if self.consumer_state is ConsumerState.FAILED:
            self._align(view)
            self._look_for_missing_topic()
            if self._lost.accepted(view.control.losses):
                self.restart()
            return False
        try:
            if self._checkpoints.known is None:
                self.state = self._checkpoints.recover(self.progress)
                self._alignment.forget()
            self._align(view)
            self._persisting.look_at_dead_letters()
            self._swap_if_new(self._logs.with_learned(self.state, self.valid_partitions))
            self._swap_if_new(self._persisting.take_over(self.state))
            self._swap_if_new(self._persisting.again_if_due(self.state, self.progress))
            self._follow(view)  # first: one that has failed answers for what its positions say
            self._topic.expect(view.control.topic_id)
            self._topic.raise_if_changed()
            if not self._life.reading or not self._knows_topic():
                return False
            worked = self._consume(timeout_s)
            self._swap_if_new(self._persisting.if_due(self.state, self.progress))
        except LogTruncated as error:
            self._settle_cut(error)
            return False
        except (NotFound, OffsetsGone, Corrupted, TopicRecreated) as error:
            if isinstance(error, NotFound) and self._life.reading:
                self._watch.note_missing()
            cause = self._watch.cause_of(error)
            if isinstance(cause, LogTruncated):
                self._settle_cut(cause)
            elif isinstance(cause, OffsetsGone) and cause.start <= cause.position <= cause.end:
                self._assignment.forget()  # the client doubted the position, and the log has what was read
            else:
                self.fail(cause)
            return False
        except RtolapError as error:
            self._note_problem(str(error))  # seen until a step goes well: the same is tried again
            raise
        return worked

    def fail(self, error: RtolapError) -> None:
        """Stop the consumer, because going on would be wrong."""
        if self.consumer_state is not ConsumerState.FAILED:
            error = self._lost.note(error, self.state.positions)
        self._life.fail(error)

    def restart(self) -> None:
        """Go on from the position of a failure, after its cause is mended."""
        if self._life.restart():
            self._lost.clear()
            self._topic.truncation_settled()
            self._assignment.forget()

    def confirm_topic(self) -> None:
        """Confirm that what was read until now is of the topic in which the cube's offsets count. For any
        thread. Raises TopicRecreated, NotFound and Unavailable: then nothing of it may be stored."""
        self._topic.confirm(TOPIC_WAIT_S)

    def pause(self, paused: bool) -> None:
        """Set the local switch for pauses, beside the cube's own."""
        self._pauses.is_paused_here = paused

    def forget_lowered(self, lowered: Offsets) -> None:
        """Forget lowered offsets that are known everywhere.

        Every replica that begins from now on begins no further than these.
        """
        self.lowered = {p: at for p, at in self.lowered.items() if lowered.get(p) != at}

    def close(self) -> None:
        self._persisting.close()
        self._consumer.close()

    def _align(self, view: CubeView) -> None:
        if self._alignment.is_of(view):
            return
        checkpoints, owned = self._checkpoints, self.owned
        if checkpoints.known is not None:
            checkpoints.known = {p: o for p, o in checkpoints.known.items() if p in owned}
            self.progress.keep_only(owned)
        state = self._alignment.align(self.state, view, self.valid_partitions)
        if state is None:
            return
        checkpoints.dirty |= len(list(state.tables())) < len(list(self.state.tables()))  # frees the files
        self._swap(state)

    def _swap_if_new(self, state: LocalState) -> None:
        if state is not self.state:
            self._swap(state)

    def _swap(self, state: LocalState) -> None:
        self.state = state
        self.epoch += 1

    # -- assignment and pauses --------------------------------------------------------------------------

    def _follow(self, view: CubeView) -> None:
        control = view.control
        owned = self.owned if control.enabled else frozenset[int]()
        state = self._assignment.follow(self.state, owned, view.start_offsets, control.losses)
        if state is not self.state:
            self._watch.assigned()
        self._swap_if_new(state)
        if control.close_epoch > self._close_epoch:
            self._close_epoch = control.close_epoch
            self.force.update(closings.late_before(self.schema, self.state, control.close_before_ms))
        self._behind = self._promises.behind(
            self.state.positions, view.records, view.settled.frontier, self.owned
        )
        if self.consumer_state is ConsumerState.STOPPED:
            self._pauses.ended()
        else:
            self._pauses.follow(self.state, view, self._behind)

    # -- consuming --------------------------------------------------------------------------------------

    def _consume(self, timeout_s: float) -> bool:
        state, worked = self._intake.read(self.state, timeout_s)
        is_new = state is not self.state
        self._swap_if_new(state)
        if is_new:
            self._topic.note_read()  # behind the swap: who confirms it compares it with the log, too
        if worked:
            self._freed.batch_taken(self.consumer_state)
        self._checkpoints.dirty |= worked
        self._note_problem(self._watch.poll_if_due(self.state.positions))
        positions = self.state.positions
        if self.consumer_state is ConsumerState.REPLAYING and all(
            self.progress.at_end(positions, p) for p in positions
        ):
            self._life.apply(ConsumerEvent.CAUGHT_UP)
        return worked

    def look_up_log_ends(self) -> None:
        """Look up the ends of the logs, on a thread beside the core's."""
        error_text = self._watch.poll(self.state.positions)
        if self.consumer_state is not ConsumerState.FAILED:  # that has a reason of its own
            self._note_problem(error_text)

    # -- the topic --------------------------------------------------------------------------------------

    def _knows_topic(self) -> bool:
        """Return True once the topic is confirmed to be the one in which the positions count.

        Nothing is read before. Its logs must also still hold what was read below the positions.
        """
        if not self._watch.is_confirmed:
            self._note_problem(self._watch.confirm_assigned())
            if self._watch.is_confirmed:
                self._logs.compare_vectors(self._view, self.state.positions.keys())
        return self._watch.is_confirmed

    def _compare_with_log(self, timeout_s: float) -> None:
        self._logs.compare(self.state, timeout_s)

    def _settle_cut(self, error: LogTruncated) -> None:
        """Handle a truncated log by the cube's policy.

        The cube stops, or it drops what the log has lost and reads on from where the log diverges.
        """
        if (refusal := self._logs.refusal(error, self._view)) is not None:
            self.fail(refusal)
            return
        log.error("cube %s: %s; what was read beyond is dropped", self.schema.cube.name, error)
        at = {cut.partition: cut.diverges for cut in error.cuts}
        self._swap(without_cut(self.state, error.cuts, self.valid_partitions))
        self._checkpoints.lower(at, self.state)
        self.lowered = {**self.lowered, **at}
        self._topic.truncation_settled()
        self._assignment.begin_below(at)

    def _look_for_missing_topic(self) -> None:
        """Go on if a missing topic is back; note the error if it is another topic."""
        try:
            if self._watch.returned(self.state.positions):
                self.restart()
        except (TopicRecreated, LogTruncated) as error:
            self._life.rename(error)

    def _note_problem(self, problem: str | None) -> None:
        if problem is not None:
            self._life.reason = problem

    # -- checkpoints ------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write a checkpoint. Raises what `Checkpoints.write` raises; the state and the checkpoint on disk
        then stay as they were."""
        self._swap_if_new(self._persisting.write(self.state, self.progress))

    def replay_from(self) -> Offsets:
        """Return, per partition, the smallest offset that is not in history, as of the last checkpoint."""
        return self._checkpoints.replay_from(self.state)

    # -- what comes back from beside --------------------------------------------------------------------

    def apply_realigned(
        self, start_ms: int, old: Collection[LocalTable], new: tuple[LocalTable, ...]
    ) -> bool:
        """Swap a re-read table in; False when it is void, because `old` changed meanwhile."""
        state = exchanged(self.schema, self.state, start_ms, old, new, self.valid_partitions)
        if state is None:
            return False
        self._swap(state)
        self._checkpoints.dirty = True
        return True

    def apply_merged(self, job: MergeJob, merged: LocalTable) -> bool:
        """Swap a merged fragment in; the old files go with the next checkpoint."""
        done = self.apply_realigned(job.start_ms, job.group, (merged,))
        if merged.fragment is not None:
            self._checkpoints.adopt(merged.fragment.info.name)
        return done

    def closings(self) -> tuple[SegmentClosing, ...]:
        """Return the segments to close now, when this receiver leads."""
        self.force = {s for s in self.force if s in self.state.segments or s in self._view.records}
        due = closings.due(
            self.schema,
            self._view,
            self.state,
            self.progress,
            self._clock,
            caught_up=self.consumer_state is ConsumerState.CONSUMING,
            force=self.force,
        )
        if due:
            try:
                self._topic.confirm(TOPIC_WAIT_S)  # not of late, but now: a log may lose what it had then
            except RtolapError as error:  # nothing is closed by what may be of another topic
                self._note_problem(str(error))
                return ()
        return due
