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
STOP is asked for by a caller, by a higher generation or by the orphan rule. STOPPED, SUCCEEDED and FAILED
are final for a generation; STOP changes nothing there.

The table orders nothing to be done: `lifecycle` and `watch` act on the state that is on disk, which is all
that an agent knows after a crash.
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


_S, _E = ProcessState, ProcessEvent

FINAL = frozenset({_S.STOPPED, _S.SUCCEEDED, _S.FAILED})

TRANSITIONS: dict[tuple[ProcessState, ProcessEvent], ProcessState] = {
    (_S.PENDING, _E.SPAWNED): _S.RUNNING,
    (_S.PENDING, _E.GAVE_UP): _S.FAILED,  # it could not even be started
    (_S.PENDING, _E.STOP): _S.STOPPED,
    (_S.RUNNING, _E.CRASHED): _S.BACKOFF,
    (_S.RUNNING, _E.GAVE_UP): _S.FAILED,
    (_S.RUNNING, _E.COMPLETED): _S.SUCCEEDED,
    (_S.RUNNING, _E.STOP): _S.STOPPING,
    (_S.BACKOFF, _E.RETRY): _S.PENDING,
    (_S.BACKOFF, _E.STOP): _S.STOPPED,
    (_S.STOPPING, _E.STOP): _S.STOPPING,  # asked again, or by an agent that came after
    (_S.STOPPING, _E.GONE): _S.STOPPED,
    (_S.STOPPED, _E.STOP): _S.STOPPED,
    (_S.SUCCEEDED, _E.STOP): _S.SUCCEEDED,
    (_S.FAILED, _E.STOP): _S.FAILED,
}


def transition(
    state: ProcessState, event: ProcessEvent, *, subject: str = "process", history: object = ()
) -> ProcessState:
    """Return the next state. Raises IllegalTransition with the process's state history."""
    return step(TRANSITIONS, state, event, subject=subject, history=history)
