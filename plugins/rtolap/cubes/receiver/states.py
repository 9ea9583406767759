"""Life of one cube's consumer in a receiver: one pure table, and the switch that follows it.

                 START                CAUGHT_UP                 PAUSE
      STOPPED ───────────▶ REPLAYING ───────────▶ CONSUMING ───────────▶ PAUSED
         ▲                  │  ▲  │ ◀──── START ─────┤                     │
         │ STOP             │  │  └───── PAUSE ──────┼──────────────────▶  │
         │                  │  └──────────────────── │ ─────── RESUME ─────┘
         └── (any) ◀────────┴── FAIL ──▶ FAILED ◀────┘
                                           └──────── START ──▶ REPLAYING

FAILED means that consuming on would give a wrong answer (offsets lost to retention, topic gone, disk
broken). It still answers queries for what it holds, and stays until a START after the cause is mended.

A consumer that is held, but owes offsets that were promised, is REPLAYING of those partitions only.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from enum import StrEnum

from rtolap.base.errors import RtolapError
from rtolap.base.transitions import step
from rtolap.kafka.interfaces import StreamConsumer

log = logging.getLogger(__name__)


class ConsumerState(StrEnum):
    STOPPED = "STOPPED"
    REPLAYING = "REPLAYING"
    CONSUMING = "CONSUMING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"


class ConsumerEvent(StrEnum):
    START = "START"
    CAUGHT_UP = "CAUGHT_UP"
    PAUSE = "PAUSE"
    RESUME = "RESUME"
    FAIL = "FAIL"
    STOP = "STOP"


_S, _E = ConsumerState, ConsumerEvent

TRANSITIONS: dict[tuple[ConsumerState, ConsumerEvent], ConsumerState] = {
    (_S.STOPPED, _E.START): _S.REPLAYING,
    (_S.FAILED, _E.START): _S.REPLAYING,
    (_S.CONSUMING, _E.START): _S.REPLAYING,  # with further partitions
    (_S.REPLAYING, _E.CAUGHT_UP): _S.CONSUMING,
    (_S.REPLAYING, _E.PAUSE): _S.PAUSED,
    (_S.CONSUMING, _E.PAUSE): _S.PAUSED,
    (_S.PAUSED, _E.RESUME): _S.REPLAYING,
    (_S.REPLAYING, _E.FAIL): _S.FAILED,
    (_S.CONSUMING, _E.FAIL): _S.FAILED,
    (_S.PAUSED, _E.FAIL): _S.FAILED,
    (_S.STOPPED, _E.FAIL): _S.FAILED,
    (_S.REPLAYING, _E.STOP): _S.STOPPED,
    (_S.CONSUMING, _E.STOP): _S.STOPPED,
    (_S.PAUSED, _E.STOP): _S.STOPPED,
    (_S.FAILED, _E.STOP): _S.STOPPED,
}

READING = frozenset((_S.REPLAYING, _S.CONSUMING))


def transition(state: ConsumerState, event: ConsumerEvent, *, subject: str = "consumer") -> ConsumerState:
    """Return the next state. Raises IllegalTransition naming what is legal."""
    return step(TRANSITIONS, state, event, subject=subject)


class ConsumerLifecycle:
    """Changed by the core thread only; `states` has the table."""

    def __init__(self, cube: str, consumer: StreamConsumer) -> None:
        self.state = ConsumerState.STOPPED
        self.reason = ""
        self._cube = cube
        self._consumer = consumer
        self._reads_only: tuple[frozenset[int], frozenset[int]] | None = None  # (these, of all assigned)

    @property
    def reading(self) -> bool:
        return self.state in READING

    def apply(self, event: ConsumerEvent) -> None:
        self.state = transition(self.state, event, subject=f"cube {self._cube}")

    def fail(self, error: RtolapError) -> None:
        if self.state is ConsumerState.FAILED:
            return
        log.error("cube %s stops: %s", self._cube, error)
        self.apply(ConsumerEvent.FAIL)
        self.reason = str(error)

    def rename(self, error: RtolapError) -> None:
        """Replace the reason of a failure by the known cause."""
        if self.state is ConsumerState.FAILED and self.reason != str(error):
            log.error("cube %s: %s", self._cube, error)
            self.reason = str(error)

    def restart(self) -> bool:
        """Return True if it had failed, and may start again."""
        if self.state is not ConsumerState.FAILED:
            return False
        self.apply(ConsumerEvent.STOP)
        self.reason = ""
        return True

    def hold(self, reason: str | None, owed: Collection[int] = (), assigned: Collection[int] = ()) -> None:
        """Pause while there is a reason to, but for the `owed` of the `assigned` partitions."""
        if reason is None:
            self._resume()
            self.reason = self._consumer.broker_error or ""
        elif owed:
            self._read_only(frozenset(owed), frozenset(assigned))
            self.reason = f"{reason}; of partitions {sorted(owed)} it reads what was promised before"
        else:
            self._pause()
            self.reason = reason

    def _resume(self) -> None:
        if self.state is ConsumerState.PAUSED or self._reads_only is not None:
            self._consumer.resume()
            self._reads_only = None
        if self.state is ConsumerState.PAUSED:
            self.apply(ConsumerEvent.RESUME)

    def _read_only(self, owed: frozenset[int], assigned: frozenset[int]) -> None:
        if self.state is ConsumerState.PAUSED:
            self.apply(ConsumerEvent.RESUME)
        elif self.state is ConsumerState.CONSUMING:
            self.apply(ConsumerEvent.START)
        if self._reads_only != (owed, assigned):
            self._consumer.pause()
            self._consumer.resume(owed)
            self._reads_only = (owed, assigned)

    def _pause(self) -> None:
        if self.reading:
            self._consumer.pause()
            self._reads_only = None
            self.apply(ConsumerEvent.PAUSE)
