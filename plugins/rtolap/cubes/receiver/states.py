"""Life of one cube's consumer in a receiver: one pure table.

                 START                CAUGHT_UP                 PAUSE
      STOPPED ───────────▶ REPLAYING ───────────▶ CONSUMING ───────────▶ PAUSED
         ▲                  │  ▲  │ ◀──── START ─────┤                     │
         │ STOP             │  │  └───── PAUSE ──────┼──────────────────▶  │
         │                  │  └──────────────────── │ ─────── RESUME ─────┘
         └── (any) ◀────────┴── FAIL ──▶ FAILED ◀────┘
                                           └──────── START ──▶ REPLAYING

FAILED means that consuming on would give a wrong answer (offsets lost to retention, topic gone, disk
broken). It still answers queries for what it holds, and stays until a START after the cause is mended.
"""

from __future__ import annotations

from enum import StrEnum

from rtolap.base.transitions import step


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
    """The next state. Raises IllegalTransition naming what is legal."""
    return step(TRANSITIONS, state, event, subject=subject)
