"""Decides if a sink surely remembers the label of a batch, so that an unknown label means "not loaded". Pure.

Such a sink drops finished labels, the earliest first, by age and by their number in the database. Everybody
who loads into the database uses labels up, so a loader's own count is a lower bound. It has a proof: a
*witness*, a label of its own that had finished before the first request of the batch. A sink that still knows
the witness has not dropped the label of the batch, which would have finished later.

A witness is an earlier batch, or a *marker*: a label without rows that the loader finishes before the first
request of a batch whose earlier batches are too old, or are none (`needs_marker`, `marker_of`). Each owner of
the job makes its own, before its first request of the batch. It has found then that the batch is not loaded.

The sink surely remembers the label of a batch when all of these hold:

    age      the first request is younger than `label_kept_ms`
    count    the requests of this job since the earlier batch are fewer than `label_kept_count`
    witness  the sink knows the earlier batch or the marker

A committer keeps the record of the witness of each batch that is not settled (`witness_of_all`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rtolap.model.loader import LoaderSink
from rtolap.protocols.stream_load.messages import LoadState
from rtolap.stored.loader.states import Sent
from rtolap.stored.metastore.offsets import OffsetsRecord

WITNESS_AGE_MS_MAX = 60_000  # of an earlier batch that stands in for a marker


def marker_of(label: str, epoch: int) -> str:
    """Return the label of the marker that the owner of that epoch makes for a batch.

    An owner that was deposed and does not know it makes another one. No batch has this label: those end with
    a number.
    """
    return f"{label}_{epoch}_marker"


def needs_marker(record: OffsetsRecord, records: Iterable[OffsetsRecord], now_ms: int) -> bool:
    """Return True if no other batch has finished lately, and before the first request of `record`."""
    witness = witness_of(record.first_sent_at_ms, records)
    return witness is None or now_ms - (witness.loaded_at_ms or 0) > WITNESS_AGE_MS_MAX


_FINAL = (LoadState.VISIBLE, LoadState.ABORTED)  # no longer under way, so in the row that labels leave by


def witness_of(first_sent_at_ms: int | None, records: Iterable[OffsetsRecord]) -> OffsetsRecord | None:
    """Return the newest of `records` whose load had finished before the first request; None where none had.

    In the same millisecond, it may have finished after the load of the batch.

    A batch without a request has no label in the sink, and is no witness.
    """
    finished = [
        record
        for record in records
        if record.attempts
        and record.loaded_at_ms is not None
        and (first_sent_at_ms is None or record.loaded_at_ms < first_sent_at_ms)
    ]
    return max(finished, key=lambda record: (record.loaded_at_ms or 0, record.sequence_id), default=None)


def witness_of_all(records: Iterable[OffsetsRecord]) -> OffsetsRecord | None:
    """Return the witness of the batch that was sent first among those that are not loaded.

    The witnesses of the others, and of a batch that is sent next, are newer.
    """
    known = tuple(records)
    sent = [r.first_sent_at_ms for r in known if not r.loaded and r.first_sent_at_ms is not None]
    return witness_of(min(sent, default=None), known)


def sent_when(
    record: OffsetsRecord,
    records: Iterable[OffsetsRecord],
    now_ms: int,
    sink: LoaderSink,
    state_of: Callable[[str], LoadState],
) -> Sent:
    """Return when `record` was sent, for a label that has just been found unknown.

    `records` are all of the job. `state_of` reads from the sink, after the label of `record` was read: a
    witness that is known then was known before.
    """
    if record.attempts == 0:
        return Sent.NEVER
    if record.first_sent_at_ms is None:
        return Sent.LONG_AGO
    known = tuple(records)
    witness = witness_of(record.first_sent_at_ms, known)
    since = -1 if witness is None else witness.sequence_id
    requests = sum(each.attempts for each in known if each.sequence_id > since)
    if now_ms - record.first_sent_at_ms >= sink.label_kept_ms or requests >= sink.label_kept_count:
        return Sent.LONG_AGO
    labels = (*(() if witness is None else (witness.label,)), marker_of(record.label, record.epoch))
    return Sent.LATELY if any(state_of(label) in _FINAL for label in labels) else Sent.LONG_AGO
