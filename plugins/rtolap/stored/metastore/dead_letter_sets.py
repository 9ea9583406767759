"""Refused records of a job in the ledger: a row for those of one batch that are in one state.

A record is a dead letter once its batch is loaded without it. Before that the batch may still load it, by
another definition. So the rows are written in the transaction that notes the batch as loaded.

A batch may have been sent more than once, by definitions that refuse different records. Each request notes
what it leaves out, before it goes out. Where the answer does not tell which request was taken, a record that
all of them left out is OPEN, and one that only some left out is UNCERTAIN.

    OPEN         not in the table
    REPLAYING    in a replay whose outcome is not noted yet
    REPLAYED     in the table, by a replay
    DROPPED      given up by a person
    SUPERSEDED   the job was reset, and its new incarnation reads the record again
    UNCERTAIN    perhaps in the table: a person has to look
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum

import msgspec
import sqlalchemy as sa

from rtolap.base.decoding import copied, decode_json
from rtolap.model.offsets import Offsets
from rtolap.stored.metastore.places import Places
from rtolap.stored.metastore.schema import dead_letter_set as _d

SETS_MAX = 20_000  # of a job; beyond that its oldest ones are forgotten, and can be replayed no more


class LetterState(StrEnum):
    OPEN = "OPEN"
    REPLAYING = "REPLAYING"
    REPLAYED = "REPLAYED"
    DROPPED = "DROPPED"
    SUPERSEDED = "SUPERSEDED"
    UNCERTAIN = "UNCERTAIN"


class BatchRefusal(msgspec.Struct, frozen=True):
    """Records that a batch has left out.

    Attributes:
        sha256: the checksum of the content of the batch.
        every: those that are surely not in the table.
        some: those that perhaps are.
    """

    sha256: str
    every: Places
    some: Places = Places()


class _Noted(msgspec.Struct, frozen=True):
    every: Places
    some: Places


class LetterSet(msgspec.Struct, frozen=True):
    """Refused records of a batch that are in one state.

    Attributes:
        label: of the batch.
        action_id: the replay or drop; None where there was none, or it changed nothing.
        detail: what the last replay says of them, for people.
    """

    set_id: int
    label: str
    batch_sha256: str
    state: LetterState
    places: Places
    action_id: int | None
    detail: str


def noted_refusal(present: str | None, attempts: int, refused: Places) -> str | None:
    """Return the note of a batch, after the requests noted in `present`, for one more that leaves out
    `refused`."""
    if attempts == 0:
        noted = _Noted(refused, refused)
    else:
        before = _noted(present)
        noted = _Noted(before.every & refused, before.some | refused)
    return msgspec.json.encode(noted).decode() if noted.some else None


def refusal_noted(present: str | None, attempts: int, sha256: str, last: BatchRefusal | None) -> BatchRefusal:
    """Return what a batch has left out where it is not known which of its requests was taken. `last`: what
    the last attempt leaves out, though it need not have come to a request."""
    if last is not None:
        present, sha256 = noted_refusal(present, attempts, last.every), last.sha256
    noted = _noted(present)
    return BatchRefusal(sha256, noted.every, noted.some - noted.every)


def _noted(text: str | None) -> _Noted:
    return _Noted(Places(), Places()) if text is None else decode_json(text, _Noted)


def add_dead_letters(
    connection: sa.Connection, job_id: str, label: str, refused: BatchRefusal, now_ms: int
) -> None:
    """Write what a batch has left out, and forget the oldest sets of the job beyond SETS_MAX."""
    if not refused.every and not refused.some:
        return
    for state, places in ((LetterState.OPEN, refused.every), (LetterState.UNCERTAIN, refused.some)):
        insert_set(connection, job_id, LetterSet(0, label, refused.sha256, state, places, None, ""), now_ms)
    of_job = _d.c.job_id == job_id
    beyond = sa.select(_d.c.set_id).where(of_job).order_by(_d.c.set_id.desc()).offset(SETS_MAX).limit(1)
    if (oldest := connection.scalar(beyond)) is not None:
        unused = of_job & (_d.c.set_id <= oldest) & (_d.c.state != LetterState.REPLAYING.value)
        connection.execute(sa.delete(_d).where(unused))


def insert_set(connection: sa.Connection, job_id: str, kept: LetterSet, now_ms: int) -> None:
    if kept.places:
        connection.execute(
            sa.insert(_d).values(
                job_id=job_id,
                label=kept.label,
                batch_sha256=kept.batch_sha256,
                state=kept.state.value,
                places=kept.places.encoded(),
                records=len(kept.places),
                action_id=kept.action_id,
                detail=kept.detail,
                noted_at_ms=now_ms,
            )
        )


def letter_sets(
    connection: sa.Connection,
    job_id: str,
    states: Iterable[LetterState] = LetterState,
    labels: Collection[str] | None = None,
) -> tuple[LetterSet, ...]:
    """Return the sets of a job that are in one of these states, the earliest first: of batches with these
    labels; None for all."""
    values = [state.value for state in states]
    found = sa.select(_d).where(_d.c.job_id == job_id, _d.c.state.in_(values)).order_by(_d.c.set_id)
    if labels is not None:
        found = found.where(_d.c.label.in_(sorted(labels)))
    return tuple(
        copied(LetterSet, row, state=LetterState(row.state), places=Places.decoded(row.places))
        for row in connection.execute(found)
    )


def counts_by_state(connection: sa.Connection, job_id: str) -> dict[str, int]:
    """Return the number of records in each state that any is in."""
    counts = (
        sa.select(_d.c.state, sa.func.sum(_d.c.records)).where(_d.c.job_id == job_id).group_by(_d.c.state)
    )
    return {state: int(records) for state, records in connection.execute(counts)}


def split(
    connection: sa.Connection,
    job_id: str,
    kept: LetterSet,
    places: Places,
    state: LetterState,
    *,
    now_ms: int,
    action_id: int | None = None,
    detail: str = "",
) -> Places:
    """Move those of `places` that are in the set to another state; return them."""
    moved = kept.places & places
    if not moved:
        return moved
    rest = kept.places - moved
    of_set = _d.c.set_id == kept.set_id
    if rest:
        connection.execute(sa.update(_d).where(of_set).values(places=rest.encoded(), records=len(rest)))
    else:
        connection.execute(sa.delete(_d).where(of_set))
    after = LetterSet(0, kept.label, kept.batch_sha256, state, moved, action_id, detail)
    insert_set(connection, job_id, after, now_ms)
    return moved


def supersede(connection: sa.Connection, job_id: str, begins_at: Offsets | None, now_ms: int) -> None:
    """Note that a new incarnation reads again from `begins_at` on; None: everything, as far as is known."""
    for kept in letter_sets(connection, job_id, (LetterState.OPEN, LetterState.UNCERTAIN)):
        again = kept.places.at_or_beyond(begins_at or {})
        split(connection, job_id, kept, again, LetterState.SUPERSEDED, now_ms=now_ms)
