"""The life of a managed process: one pure table.

                 SPAWNED             CRASHED                       COMPLETED
        PENDING ─────────▶ RUNNING ──────────▶ BACKOFF   RUNNING ────────────▶ SUCCEEDED   (final exit 0)
           ▲                  │                 │   │
           │                  │ STOP      RETRY │   │ STOP       GAVE_UP
           │                  ▼                 │   ▼    RUNNING ────────────▶ FAILED      (restarts used up,
           │              STOPPING ────────▶ STOPPED                                        or a final ≠ 0)
           │                        GONE        │
           └────────────────────────────────────┘ (BACKOFF, RETRY → PENDING)

Which exit codes are final: of a one-shot all, of any other process `RestartPolicy.final_codes`.
STOP is asked for by a caller, by a higher generation or by an expired lease. STOPPED, SUCCEEDED and FAILED
are final for a generation; STOP changes nothing there.
"""

from __future__ import annotations

from enum import StrEnum

from rtolap.base.transitions import step


class ProcessState(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    BACKOFF = "BACKOFF"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


class ProcessEvent(StrEnum):
    SPAWNED = "SPAWNED"
    CRASHED = "CRASHED"
    GAVE_UP = "GAVE_UP"
    COMPLETED = "COMPLETED"
    RETRY = "RETRY"
    STOP = "STOP"
    GONE = "GONE"


class ProcessAction(StrEnum):
    """What the supervisor does once the transition is on disk."""

    SPAWN = "SPAWN"
    SCHEDULE_RESTART = "SCHEDULE_RESTART"
    TERMINATE = "TERMINATE"
    KEEP_LOG_TAIL = "KEEP_LOG_TAIL"


_S, _E, _A = ProcessState, ProcessEvent, ProcessAction

FINAL = frozenset({_S.STOPPED, _S.SUCCEEDED, _S.FAILED})

TRANSITIONS: dict[tuple[ProcessState, ProcessEvent], tuple[ProcessState, tuple[ProcessAction, ...]]] = {
    (_S.PENDING, _E.SPAWNED): (_S.RUNNING, ()),
    (_S.PENDING, _E.GAVE_UP): (_S.FAILED, (_A.KEEP_LOG_TAIL,)),  # it could not even be started
    (_S.PENDING, _E.STOP): (_S.STOPPED, ()),
    (_S.RUNNING, _E.CRASHED): (_S.BACKOFF, (_A.SCHEDULE_RESTART, _A.KEEP_LOG_TAIL)),
    (_S.RUNNING, _E.GAVE_UP): (_S.FAILED, (_A.KEEP_LOG_TAIL,)),
    (_S.RUNNING, _E.COMPLETED): (_S.SUCCEEDED, (_A.KEEP_LOG_TAIL,)),
    (_S.RUNNING, _E.STOP): (_S.STOPPING, (_A.TERMINATE,)),
    (_S.BACKOFF, _E.RETRY): (_S.PENDING, (_A.SPAWN,)),
    (_S.BACKOFF, _E.STOP): (_S.STOPPED, ()),
    (_S.STOPPING, _E.STOP): (_S.STOPPING, (_A.TERMINATE,)),  # asked again, or by an agent that came after
    (_S.STOPPING, _E.GONE): (_S.STOPPED, (_A.KEEP_LOG_TAIL,)),
    (_S.STOPPED, _E.STOP): (_S.STOPPED, ()),
    (_S.SUCCEEDED, _E.STOP): (_S.SUCCEEDED, ()),
    (_S.FAILED, _E.STOP): (_S.FAILED, ()),
}


def transition(
    state: ProcessState, event: ProcessEvent, *, subject: str = "process", history: object = ()
) -> tuple[ProcessState, tuple[ProcessAction, ...]]:
    """The next state and what to do. Raises IllegalTransition with the process's story."""
    return step(TRANSITIONS, state, event, subject=subject, history=history)
