"""Delivery of groups of calls, one group after the other: what is new goes to the listener, in order.

    1. the calls that wait are put together; events that were delivered before are left out
    2. the rest stands in the order of its sequence ids: they grow from edit to edit of a row, over all
       regions that the row was ever in
    3. events of rows that are set apart go to the dead letters; those that failed lately, and those behind
       them in their rows, are held back
    4. the listener delivers; what it delivered is in the journal before a call is answered
    5. a call is answered well when nothing of it is left to deliver; else HBase sends it again

One group at a time is what makes a call that comes again while the first still works wait for it, and find
its events delivered. A process delivers only after `recover`, which shuts its predecessor out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rtolap.base.clock import Clock
from rtolap.base.errors import NotLeader, Refused, RtolapError, Unavailable
from rtolap.kafka.transactions import OutColumns
from rtolap.sep.delivery.apart import letters_apart, letters_skipped, set_rows_apart
from rtolap.sep.delivery.delivered_edits import DeliveredEdits, Mask, Split
from rtolap.sep.delivery.edit_records import I64, RegionEdits
from rtolap.sep.delivery.journal import Delivered, Journal, RowApart, RowKey
from rtolap.sep.delivery.listener import DeliveryOutcome, EventGroup, Failure, Listener, MirrorsRows
from rtolap.sep.delivery.poison import (
    FailingEvents,
    PoisonPolicy,
    blocked_events,
    key_of,
    pause_s,
)
from rtolap.sep.delivery.replay import Replayed, read_again, replay
from rtolap.sep.events.edit_batch import EditBatch, concat

log = logging.getLogger(__name__)

REPLAY_EVERY_S = 600.0


@dataclass
class Call:
    """A call of a region server.

    Attributes:
        error: None once all of its events are delivered; meaningless before `is_answered`.
    """

    batch: EditBatch
    deadline_s: float
    error: RtolapError | None = None
    is_answered: bool = False

    def answer(self, error: RtolapError | None) -> None:
        self.error, self.is_answered = error, True


@dataclass
class Counts:
    delivered: int = 0
    duplicates: int = 0
    late: int = 0
    dead_letters: int = 0
    set_apart: int = 0
    replayed: int = 0
    failed_calls: int = 0


class Delivery:
    """Delivers calls to a listener. Not thread-safe: `serving.DeliveryThread` gives it a thread.

    Attributes:
        stopped: why nothing more is accepted, for good; None while delivery goes on.
        last_error: why the target accepted nothing the last time; None after a success.
        resumes_s: when the target is tried again, by the monotonic clock.
    """

    def __init__(
        self,
        listener: Listener,
        journal: Journal,
        clock: Clock,
        *,
        policy: PoisonPolicy = PoisonPolicy(),
        dead_letter_topic: str = "",
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self.counts = Counts()
        self.failing = FailingEvents(policy)
        self.stopped: RtolapError | None = None
        self.last_error: str | None = None
        self.resumes_s = 0.0
        self.replay_due_s = 0.0
        self._failures = 0
        self._listener = listener
        self._journal = journal
        self._clock = clock
        self._dead_letter_topic = dead_letter_topic
        self._leads = leads

    @property
    def apart(self) -> dict[RowKey, RowApart]:
        """The rows that are set apart. Not to be changed."""
        return self._journal.apart

    @property
    def remembered_edits(self) -> int:
        memory = self._journal.memory
        return 0 if memory is None else memory.num_edits

    def recover(self) -> None:
        """Take over from the previous process. If it raises, nothing was delivered.

        Raises NotLeader if this process does not lead, because it would shut out the one that does. Raises
        what the journal and the listener raise.
        """
        if not self._leads():
            raise NotLeader("another process delivers this subscription")
        self._journal.recover()
        try:
            self._listener.recover(self._journal)
        except RtolapError:
            self._journal.memory = None
            raise

    def run(self, calls: Sequence[Call]) -> None:
        """Answer the calls. Raises NotLeader, once they are answered: another process delivers now."""
        try:
            self._run([call for call in calls if self._is_due(call)])
        except NotLeader as error:
            self.stopped = error
            self._fail(calls, error)
            raise
        except RtolapError as error:
            self._failures += 1
            self.last_error = str(error)
            self.resumes_s = self._clock.monotonic_s() + pause_s(self._failures)
            self._fail(calls, error)
        else:
            self._failures, self.last_error, self.resumes_s = 0, None, 0.0

    def replay(self, *, skipped: bool = False) -> Replayed:
        """Deliver the dead letters of rows that are set apart; with `skipped`, those of skipped events too.

        Raises NotLeader; Unavailable if the replay must be tried again.
        """
        self.replay_due_s = self._clock.monotonic_s() + REPLAY_EVERY_S
        self._ready()
        replayed = replay(self._journal, self._listener, self._dead_letter_topic, skipped=skipped)
        self.counts.replayed += replayed.delivered
        for (table, row), reason in replayed.failed.items():
            log.warning("row %r of %s stays apart: %s", row, table, reason)
        return replayed

    def read_again(self, table: str, rows: Sequence[bytes]) -> None:
        """Bring rows of a mirrored table to the state that HBase has now.

        Rows that are set apart are read too, and stay apart. Raises Refused if the listener mirrors no rows.
        """
        if not isinstance(self._listener, MirrorsRows) or not self._listener.mirrors_rows:
            raise Refused("the listener mirrors no rows", expected="a unique table of stored tables")
        self._ready()
        failed = read_again(self._journal, self._listener, table, rows, self._clock.now_ms())
        for row, reason in failed.items():
            log.warning("row %r of %s is not taken: %s", row, table, reason)

    def set_apart(self, batch: EditBatch, reason: str) -> None:
        """Write events to the dead letters without remembering them: an edit with the same id counts as new.

        Raises NotLeader; Unavailable if it must be tried again.
        """
        self._ready()
        reasons = dict.fromkeys(range(batch.num_events), reason)
        for some, columns in letters_skipped(
            self._journal, self._dead_letter_topic, batch, np.ones(batch.num_events, bool), reasons
        ):
            self._journal.write([Delivered(())], [columns])
            self.counts.dead_letters += len(some)

    def close(self) -> None:
        self._listener.close()
        self._journal.close()

    def _is_due(self, call: Call) -> bool:
        """Return True if the call is to be served; otherwise answer it at once."""
        if self.stopped is not None:
            call.answer(Refused(f"delivery was stopped: {self.stopped}"))
        elif self._clock.monotonic_s() >= call.deadline_s:
            call.answer(Unavailable("the call's time was over before its events could begin"))
        return not call.is_answered

    def _run(self, calls: Sequence[Call]) -> None:
        if not calls:
            return
        self._ready()
        memory = self._journal.memory
        assert memory is not None, "the journal was read"
        run = _GroupRun(calls, memory, self._journal)
        self.counts.duplicates += int(run.split.duplicate.sum())
        self.counts.late += int(run.split.late.sum())
        while self._pass(run):
            """Events behind those that were given up may go now."""
        if not run.left.any():
            for call in calls:
                call.answer(None)
            return
        for call in calls:
            of_call = memory.split(call.batch).new
            if of_call.any():
                self.counts.failed_calls += 1
                call.answer(self._reason(call.batch, of_call))
            else:
                call.answer(None)

    def _ready(self) -> None:
        """Settle what the last write or load has left open."""
        if self._journal.memory is None:
            self.recover()
        elif self._journal.open_loads:
            self._listener.recover(self._journal)  # before a group is looked up: it may be theirs

    def _pass(self, run: _GroupRun) -> bool:
        """Deliver what may go; return True if another pass may deliver more."""
        now_s = self._clock.monotonic_s()
        places, batch = run.due()
        if self._journal.apart:
            letters = letters_apart(self._journal, self._dead_letter_topic, batch, run.split.late[places])
            self.counts.set_apart += self._write_letters(run, places, batch, letters)
            places, batch = run.due()
        failing = self.failing.places(batch)
        blocked = blocked_events(batch, {place for place, event in failing.items() if event.due_s > now_s})
        singly = np.zeros(batch.num_events, bool)
        singly[list(failing)] = True
        if blocked.any():
            places, batch, singly = places[~blocked], batch.filter(~blocked), singly[~blocked]
        if not len(places):
            return False
        outcome = self._listener.deliver(run.group(places, batch, singly))
        self.counts.delivered += int(outcome.delivered.sum())
        if self.failing:
            for place in np.flatnonzero(outcome.delivered & singly).tolist():
                self.failing.done(key_of(batch, place))
        if outcome.away is not None:
            raise outcome.away
        return bool(outcome.failures) and self._after_failures(run, places, batch, outcome)

    def _after_failures(
        self, run: _GroupRun, places: I64, batch: EditBatch, outcome: DeliveryOutcome
    ) -> bool:
        now_s, known = self._clock.monotonic_s(), len(self.failing)
        policy = self.failing.policy
        given_up: dict[int, Failure] = {}
        to_set_apart: dict[RowKey, str] = {}
        for place, failure in outcome.failures.items():
            key = key_of(batch, place)
            verdict = self.failing.failed(key, failure.reason, now_s, alone=failure.alone)
            if failure.alone:
                log.warning(
                    "event %s of region %s, row %r failed: %s", key[1], key[0], key[2], failure.reason
                )
            if verdict == "give up" or (failure.final and policy.policy != "retry"):
                given_up[place] = failure
            elif verdict == "set apart":
                to_set_apart[str(batch.events["table"][place].as_py()), key[2]] = failure.reason
        if given_up and policy.policy == "stop":
            reason = next(iter(given_up.values())).reason
            self.stopped = Refused(
                "an event cannot be delivered, and the subscription stops at such ones",
                found=reason,
                action="mend the listener or the event, then start the subscription again",
            )
            return False
        if given_up:
            reasons = {place: failure.reason for place, failure in given_up.items()}
            letters = letters_skipped(
                self._journal, self._dead_letter_topic, batch, run.split.late[places], reasons
            )
            self.counts.dead_letters += self._write_letters(run, places, batch, letters)
        if to_set_apart and not self._journal.apart:
            self.replay_due_s = now_s + REPLAY_EVERY_S
        begun = set_rows_apart(self._journal, self._clock, self._dead_letter_topic, to_set_apart)
        # another pass: for those behind it, and alone for those that failed in company; each gets further
        in_company = any(not failure.alone for failure in outcome.failures.values())
        return bool(given_up or begun or in_company or len(self.failing) > known)

    def _write_letters(
        self, run: _GroupRun, places: I64, batch: EditBatch, letters: Iterator[tuple[list[int], OutColumns]]
    ) -> int:
        """Write them, which delivers their events; return how many they are."""
        count = 0
        for some, columns in letters:
            mask = np.zeros(batch.num_events, bool)
            mask[some] = True
            run.commit(places, mask, [columns])
            count += len(some)
            for place in some:
                self.failing.done(key_of(batch, place))
        return count

    def _reason(self, batch: EditBatch, left: Mask) -> RtolapError:
        if self.stopped is not None:
            return self.stopped
        failing = self.failing.places(batch)
        reason = next((event.reason for event in failing.values()), "their call's time was over")
        return Unavailable(
            f"{int(left.sum())} of {len(left)} events are not delivered",
            found=reason,
            action="send them again",
        )

    def _fail(self, calls: Sequence[Call], error: RtolapError) -> None:
        for call in calls:
            if not call.is_answered:
                self.counts.failed_calls += 1
                call.answer(error)


class _GroupRun:
    """The events of the calls, and which of them are left to deliver. Places count in all of them."""

    def __init__(self, calls: Sequence[Call], memory: DeliveredEdits, journal: Journal) -> None:
        self.batch = concat([call.batch for call in calls])
        self.split: Split = memory.split(self.batch)
        self.left: Mask = self.split.new.copy()
        self._memory = memory
        self._journal = journal
        self._deadlines_s = np.repeat(
            [call.deadline_s for call in calls], [call.batch.num_events for call in calls]
        )
        # a call holds each region in the order of its log; several calls do so together when they are sorted
        sequence_ids = self.batch.events["sequence_id"].to_numpy()
        self._order = np.argsort(sequence_ids, kind="stable") if len(calls) > 1 else None

    def due(self) -> tuple[I64, EditBatch]:
        """Return the places of due events, and the batch of them, in the order of delivery."""
        if self._order is None:
            places = np.flatnonzero(self.left)
            return places, self.batch.filter(self.left)
        places = self._order[self.left[self._order]]
        return places, self.batch.take(places)

    def group(self, places: I64, batch: EditBatch, singly: Mask) -> EventGroup:
        return EventGroup(
            batch,
            self.split.late[places],
            singly,
            self._deadlines_s[places],
            commit=lambda mask, columns: self.commit(places, mask, columns),
            edits=lambda mask: self._edits(places, mask),
            noted=lambda mask: self.noted(places, mask),
        )

    def commit(self, places: I64, mask: Mask, columns: Sequence[OutColumns]) -> None:
        self._journal.write([Delivered(tuple(self._edits(places, mask)))], columns)
        self.noted(places, mask)

    def noted(self, places: I64, mask: Mask) -> None:
        self.left[places[mask]] = False

    def _edits(self, places: I64, mask: Mask) -> list[RegionEdits]:
        done = np.zeros(self.batch.num_events, bool)
        done[places[mask]] = True
        return self._memory.edits_of(self.batch, Split(self.left, ~self.left, self.split.late), done)
