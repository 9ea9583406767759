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

import sqlalchemy as sa
from rtolap.protocols.stream_load.messages import LoadAnswer, LoadState, SendOptions, TwoPhaseAnswer
from rtolap.stored.metastore import schema

from tests.support.loader.loader_runs import FaultySink
from tests.support.stored.transaction_runs import FaultyLedger

T = TypeVar("T")

TAKES = "take the lease "
OWNED_TWICE = "a lease has two owners"
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
    TAKES: "take a lease",
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
    """`point` is called before and after each write, with the name of the point.

    Each write that takes a lease is judged by the rows of the lease before and after it, which are read here
    and not by the code that is tested: a running lease has one owner.
    """

    point: Callable[[str], None] = staticmethod(lambda name: None)

    def write(self, purpose: str, kind: type[T], work: Callable[..., T], *, key: str | None = None) -> T:
        step = next((step for words, step in WRITES.items() if purpose.startswith(words)), None)
        if step is None:
            return super().write(purpose, kind, work, key=key)
        self.point(f"before {step}")
        judged = _judged(purpose.removeprefix(TAKES), self, work) if step == "take a lease" else work
        result = super().write(purpose, kind, judged, key=key)
        self.point(f"after {step}")
        return result


def _judged(name: str, ledger: PointedLedger, work: Callable[..., T]) -> Callable[..., T]:
    """Return the work, which fails where it takes a lease that runs for another owner."""

    def judged(connection: sa.Connection) -> T:
        before, now_ms = _owners(connection, name), ledger.now_ms(connection)
        result = work(connection)
        for (owner, until_ms), (taker, _) in zip(before, _owners(connection, name), strict=False):
            assert taker == owner or until_ms <= now_ms, (
                f"{OWNED_TWICE}: {taker} has taken {name} while it was {owner}'s for {until_ms - now_ms} ms"
            )
        return result

    return judged


def _owners(connection: sa.Connection, name: str) -> list[tuple[str, int]]:
    """Return owner and end of the lease of that name, of whichever table has it."""
    found = []
    for table in (schema.load_job, schema.load_share, schema.load_process):
        key = next(iter(table.primary_key.columns))
        rows = connection.execute(sa.select(table.c.owner, table.c.lease_until_ms).where(key == name))
        found += [(row.owner, row.lease_until_ms) for row in rows]
    return found


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
