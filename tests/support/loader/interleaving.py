"""Points at which a process may stand still or die: before and after each write of the ledger, and each
request.

A batch of a share, in the order of its steps. Between two of them, another process may do any of its own:

    record batch → state → note a request → load → commit label → note a loaded batch
                 → commit offsets → acknowledge → commit offsets

A process stands still inside its call, outside a transaction: a lock of the database would end it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from rtolap.protocols.stream_load.messages import LoadAnswer, LoadState, SendOptions, TwoPhaseAnswer

from tests.support.loader.loader_runs import FaultySink
from tests.support.stored.transaction_runs import FaultyLedger

T = TypeVar("T")

# the beginning of a write's purpose → its step
WRITES = {
    "record batch": "record batch",
    "note a request": "note a request",
    "note a loaded": "note a loaded batch",
    "commit offsets": "commit offsets",
    "divide job": "divide",
    "assign the shares": "assign",
    "want processes": "want",
    "join job": "join",
    "take the lease": "take a lease",
    "renew the lease": "renew a lease",
    "release the lease": "release a lease",
}
BATCH_STEPS = (
    "record batch",
    "state",
    "note a request",
    "load",
    "commit label",
    "note a loaded batch",
    "commit offsets",
    "acknowledge",
)
CRASH_STEPS = (*BATCH_STEPS, "divide", "assign", "want", "join", "take a lease", "renew a lease",
               "release a lease")  # fmt: skip


def points_of(steps: Iterable[str]) -> list[str]:
    """Return the points around these steps."""
    return [f"{side} {step}" for step in steps for side in ("before", "after")]


class PointedLedger(FaultyLedger):
    """`point` is called before and after each write, with the name of the point."""

    point: Callable[[str], None] = staticmethod(lambda name: None)

    def write(self, purpose: str, kind: type[T], work: Callable[..., T], *, key: str | None = None) -> T:
        step = next((step for words, step in WRITES.items() if purpose.startswith(words)), None)
        if step is None:
            return super().write(purpose, kind, work, key=key)
        self.point(f"before {step}")
        result = super().write(purpose, kind, work, key=key)
        self.point(f"after {step}")
        return result


class PointedSink(FaultySink):
    """A sink whose requests have points around them. `point` is called with their names."""

    def __init__(self, run: Any, server: Any, point: Callable[[str], None]) -> None:
        super().__init__(run, server)
        self._point = point

    def load(
        self, db: str, table: str, label: str, body: bytes, options: SendOptions, *, two_phase: bool = False
    ) -> LoadAnswer:
        load = super().load
        return self._pointed("load", lambda: load(db, table, label, body, options, two_phase=two_phase))

    def commit_label(self, db: str, label: str) -> TwoPhaseAnswer:
        commit_label = super().commit_label
        return self._pointed("commit label", lambda: commit_label(db, label))

    def state(self, db: str, label: str) -> LoadState:
        state = super().state
        return self._pointed("state", lambda: state(db, label))

    def acknowledge(self, db: str, labels: Iterable[str]) -> None:
        acknowledge, kept = super().acknowledge, tuple(labels)
        self._pointed("acknowledge", lambda: acknowledge(db, kept))

    def _pointed(self, step: str, request: Callable[[], T]) -> T:
        self._point(f"before {step}")
        answer = request()
        self._point(f"after {step}")
        return answer
