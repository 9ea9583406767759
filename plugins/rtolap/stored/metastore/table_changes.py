"""Recorded responses to changes of stored tables: statements, each within a read or a write of its caller.

The note goes in with the change itself, in one write. Who sends a change again, because its answer was lost,
is answered by the note, and nothing is changed a second time.
"""

from __future__ import annotations

import sqlalchemy as sa

from rtolap.base.errors import Refused
from rtolap.stored.metastore.schema import table_change as _c

_FORGOTTEN_MAX = 10_000  # at a time, to hold few locks


def find(connection: sa.Connection, request_id: str, fingerprint: str) -> str | None:
    """Return the answer that this request was given.

    Raises Refused where its id belongs to another change.
    """
    columns = sa.select(_c.c.fingerprint, _c.c.answer).where(_c.c.request_id == request_id)
    row = connection.execute(columns).one_or_none()
    if row is None:
        return None
    if row.fingerprint != fingerprint:
        raise Refused(
            f"request {request_id} has been another change of stored tables",
            expected="an id of its own for each change",
        )
    return str(row.answer)


def note(connection: sa.Connection, request_id: str, fingerprint: str, answer: str, now_ms: int) -> None:
    """Note a change. A change that is there already is an integrity error: CommitConflict of the write."""
    values = {"request_id": request_id, "fingerprint": fingerprint, "answer": answer}
    connection.execute(sa.insert(_c).values(**values, answered_at_ms=now_ms))


def forget(connection: sa.Connection, before_ms: int) -> int:
    """Delete old notes, in bounded steps; their number."""
    old = sa.select(_c.c.request_id).where(_c.c.answered_at_ms < before_ms).limit(_FORGOTTEN_MAX)
    old_ids = list(connection.scalars(old))
    if old_ids:
        connection.execute(sa.delete(_c).where(_c.c.request_id.in_(old_ids)))
    return len(old_ids)
