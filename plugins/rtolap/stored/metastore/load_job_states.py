"""The life of a loader's job: one pure table.

                    START               PAUSE
         STOPPED ──────────▶ RUNNING ──────────▶ PAUSED
            ▲                 ▲   ▲                │
            │ STOP, RESET     │   └─ RESUME, START ┘
          (any)               │ START
                  FAIL        │
          (any) ──────────▶ FAILED

START, PAUSE, RESUME and STOP are what somebody wants of it: by command, over REST, as its process begins.
FAIL is its owner's word, RESET the next incarnation. What was done before is no error for who repeats it and
changes nothing: of several threads that fail, the first says why. The process of a job that is STOPPED or
FAILED may still be ending, so neither is paused or resumed: that would take back the stop, or the failure
with its reason. A stop that comes first does not hide what the process finds while it ends.
"""

from __future__ import annotations

from enum import StrEnum

from rtolap.base.transitions import step


class LoadJobState(StrEnum):
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


class LoadJobEvent(StrEnum):
    START = "START"
    PAUSE = "PAUSE"
    RESUME = "RESUME"
    STOP = "STOP"
    FAIL = "FAIL"
    RESET = "RESET"


_S, _E = LoadJobState, LoadJobEvent

TRANSITIONS: dict[tuple[LoadJobState, LoadJobEvent], LoadJobState] = {
    (_S.STOPPED, _E.START): _S.RUNNING,
    (_S.FAILED, _E.START): _S.RUNNING,
    (_S.PAUSED, _E.START): _S.RUNNING,
    (_S.RUNNING, _E.START): _S.RUNNING,
    (_S.RUNNING, _E.PAUSE): _S.PAUSED,
    (_S.PAUSED, _E.PAUSE): _S.PAUSED,
    (_S.PAUSED, _E.RESUME): _S.RUNNING,
    (_S.RUNNING, _E.RESUME): _S.RUNNING,
    **{(state, _E.STOP): _S.STOPPED for state in LoadJobState},
    **{(state, _E.FAIL): _S.FAILED for state in LoadJobState},
    **{(state, _E.RESET): _S.STOPPED for state in LoadJobState},
}


def transition(job_id: str, state: LoadJobState, event: LoadJobEvent, *, reason: str = "") -> LoadJobState:
    """The next state. Raises IllegalTransition naming what is legal, and the present state's `reason`."""
    return step(TRANSITIONS, state, event, subject=f"loader {job_id}", history=reason or None)
