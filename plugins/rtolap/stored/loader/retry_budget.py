"""Retry budget of a batch before its loader stops: for a sink that is silent, refuses, or does not end."""

from __future__ import annotations

from rtolap.base.clock import Clock
from rtolap.base.errors import RtolapError, Unavailable
from rtolap.stored.loader.states import StopCause, Stopped
from rtolap.stored.loader.window import Pending

FAILS_MAX = 8  # of one batch, and for so long: without its nodes a front end answers at once, and says no
FAILING_S = 120.0
SILENT_S = 1_800.0
_STUCK_FACTOR = 3
_FILTERED = "too many filtered rows"


class SinkError(Exception):
    """The sink refused a call, or did not answer (`silent`)."""

    def __init__(self, error: RtolapError) -> None:
        super().__init__(str(error))
        self.silent = isinstance(error, Unavailable)


class RetryBudget:
    """`timeout_ms`: of a request to the sink. Every method raises Stopped once it is over."""

    def __init__(self, clock: Clock, *, timeout_ms: int, silent_s: float) -> None:
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._silent_s = silent_s

    def troubled(self, pending: Pending, error: SinkError) -> None:
        if not error.silent:
            self.failed(pending, str(error))
            return
        now_s = self._clock.monotonic_s()
        if pending.silent_since_s is None:
            pending.silent_since_s = now_s
        silent_s = now_s - pending.silent_since_s
        if silent_s > self._silent_s:
            raise Stopped(
                StopCause.SINK_UNAVAILABLE,
                f"no answer for {silent_s:.0f} s",
                found=str(error),
                action="start the loader again when the sink is back",
            )

    def failed(self, pending: Pending, words: str) -> None:
        """Count a failure: the next attempt looks up what became of this one."""
        pending.fails += 1
        pending.last_fail = words
        if pending.failing_since_s is None:
            pending.failing_since_s = self._clock.monotonic_s()

    def before_trying(self, pending: Pending) -> None:
        """Called when it is certain that the batch is not in the table."""
        if pending.failing_since_s is None:
            return
        failing_s = self._clock.monotonic_s() - pending.failing_since_s
        filtered = _FILTERED in pending.last_fail.lower()
        if filtered or (pending.fails >= FAILS_MAX and failing_s >= FAILING_S):
            cause = StopCause.TOO_MANY_FILTERED if filtered else StopCause.SINK_REFUSES
            raise Stopped(
                cause,
                f"batch {pending.sequence} cannot be loaded",
                found=pending.last_fail,
                action="mend the table, the columns or the tolerance, and start the loader again",
            )

    def in_prepare(self, pending: Pending) -> None:
        """The sink says that an earlier request still runs."""
        now_s = self._clock.monotonic_s()
        if pending.waiting_since_s is None:
            pending.waiting_since_s = now_s
        if (now_s - pending.waiting_since_s) * 1000 > _STUCK_FACTOR * self._timeout_ms:
            raise Stopped(
                StopCause.STUCK,
                f"label {pending.record.label} is still in PREPARE",
                expected=f"an end within {self._timeout_ms} ms",
                action="look at the sink, then start the loader again",
            )
