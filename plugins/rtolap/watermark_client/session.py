"""The session of a client with the owner of its application: reports and responses; no thread, no socket.

    reporting    merges into what is still to be sent (`pending`), so it is bounded by hosts and
                 partitions, not by time
    batch()      what to send now; the same batch, unchanged, until it is answered
    answered()   ends it: its reports are taken, or after `resend` everything is to be sent again
    given_up()   it will never be taken as it is: everything is to be sent again, units first

Order matters to be exact: say the oldest work of an event before the progress that lies beyond it. Both may
stand in one batch.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from numpy import asarray, int64
from numpy.typing import ArrayLike

from rtolap.base.clock import Clock, SystemClock
from rtolap.base.errors import DefinitionError
from rtolap.protocols.watermark.messages import (
    NAMELESS,
    Refusal,
    ReportAnswer,
    ReportBatch,
    UnitReport,
    unit_path,
)
from rtolap.watermark_client.pending import Pending


class WatermarkSession:
    """Reporting and reading are thread-safe; batches belong to one thread.

    The first batch has the wall clock in ms as its number, which is beyond those of a former process with the
    same `client_id` that the server may still know.
    """

    def __init__(self, client_id: str, clock: Clock | None = None) -> None:
        self.client_id = client_id
        self._pending = Pending()
        self._lock = threading.Lock()  # of what is pending: held for copies only
        self._answered = threading.Condition()
        self._answer: ReportAnswer | None = None
        self._unsent: ReportBatch | None = None
        self._sequence = self._last_answered = (clock or SystemClock()).now_ms()
        self._refused: dict[str, Refusal] = {}  # of the last batch that was taken, by what
        self._begins = True

    # -- saying -----------------------------------------------------------------------------------------

    def report_progress(
        self,
        level: str,
        partition: int,
        generation: int,
        hosts: Sequence[str],
        latest_ms: ArrayLike,
        counts: ArrayLike | None = None,
        *,
        partitions: int = 0,
    ) -> None:
        """Report that the consumer of that generation has read each of these hosts so far, with `counts`
        events since last time.

        `hosts` are names, a host may stand there more than once; empty for a source without a host list,
        whose `latest_ms` is one instant then. Raises DefinitionError where lengths differ.

        `partitions`: of the topic. Say it where a host may log to several: the watermark awaits them all.
        """
        latest = asarray(latest_ms, int64).reshape(-1)
        events = None if counts is None else asarray(counts, int64).reshape(-1)
        named = hosts if len(hosts) or not latest.size else [NAMELESS] * latest.size
        if len(named) != latest.size or (events is not None and events.size != latest.size):
            raise DefinitionError(
                "one instant per host is expected", found=f"{len(named)} hosts, {latest.size} instants"
            )
        with self._lock:
            self._pending.progress(level, partition, generation, named, latest, events, partitions)

    def set_oldest_work(
        self,
        level: str,
        processor: str,
        key_group: int = 0,
        oldest_work_ms: int | None = None,
        *,
        generation: int = 0,
    ) -> None:
        """Set the oldest work that the unit has taken in and not finished; None if there is none. Its lease
        is renewed from now on.

        `generation` grows with each owner of the unit (a start's wall clock in ms will do): what an owner
        reports that a later one has replaced is refused, so that a process that was stopped and goes on
        cannot finish work that is not its own any more.
        """
        with self._lock:
            self._pending.work(UnitReport(level, processor, key_group, oldest_work_ms, generation=generation))

    def leave(self, level: str, processor: str, key_group: int = 0, *, generation: int = 0) -> None:
        """End the unit. Its unfinished work no longer counts."""
        with self._lock:
            self._pending.work(UnitReport(level, processor, key_group, left=True, generation=generation))

    # -- asking -----------------------------------------------------------------------------------------

    def watermark(self, level: str) -> int | None:
        """Return the level's output by the last answer: where its downstreams may go. Never smaller."""
        answer = self._answer
        return None if answer is None else answer.watermarks.get(level)

    def input_watermark(self, level: str) -> int | None:
        answer = self._answer
        return None if answer is None else answer.inputs.get(level)

    def global_watermark(self) -> int | None:
        answer = self._answer
        return None if answer is None else answer.global_ms

    def approved_until(self) -> int | None:
        """Return windows that end at or below it have been approved by a person."""
        answer = self._answer
        return None if answer is None else answer.approved_until_ms

    def has_taken(self, level: str, partition: int, generation: int) -> bool:
        """Return True if the server took the first report of the partition's consumer of that generation. It
        then counts on no earlier one, and `input_watermark` is of that moment or later."""
        with self._lock:
            said_in = self._pending.said_in(level, partition, generation)
        return said_in is not None and said_in <= self._last_answered

    def unit_refused(self, level: str, processor: str, key_group: int = 0) -> Refusal | None:
        """Return the server's refusal of the unit's oldest work when it was last sent; None if it holds it.
        Units are sent in each batch, so after a flush this is about what was sent before it."""
        return self._refused.get(unit_path(level, processor, key_group))

    # -- batches ----------------------------------------------------------------------------------------

    def batch(self) -> ReportBatch:
        if self._unsent is None:
            self._sequence += 1
            self._unsent = self._next()
        return self._unsent

    def answered(self, answer: ReportAnswer) -> bool:
        """Return True if there is more to be sent at once."""
        self._unsent, self._begins = None, answer.resend
        with self._answered:
            if self._answer is None or answer.epoch >= self._answer.epoch:
                self._answer = answer
            if not answer.resend:
                self._refused = {refusal.what: refusal for refusal in answer.refused}
            if not answer.resend and not self._pending.withheld:
                self._last_answered = self._sequence
            self._answered.notify_all()
        return answer.resend or self._pending.more

    def given_up(self) -> None:
        with self._lock:
            if self._unsent is not None:
                self._pending.refused(self._unsent)
        self._unsent, self._begins = None, True

    def _next(self) -> ReportBatch:
        if self._answer is None:  # requests the epoch; there is no use in more before it is known
            return ReportBatch(self.client_id, self._sequence, 0, True)
        with self._lock:
            if self._begins:
                self._pending.begin()
            return self._pending.take_report(self.client_id, self._sequence, self._answer.epoch, self._begins)
