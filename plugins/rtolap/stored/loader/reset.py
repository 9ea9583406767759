"""Changes of a job by a person: what it begins with when it is redefined, and what became of a batch.

The offsets at which a job that is redefined begins are pure functions:

--at       the offsets that are given, of every partition and of no other
--go-on    behind what is loaded, or where the log begins by now; what retention took between is lost
neither    as its definition says, once it starts
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from uuid import uuid4

from rtolap.base.errors import DefinitionError, Refused
from rtolap.kafka.interfaces import LogRange
from rtolap.model.offsets import Offsets
from rtolap.stored.loader.job import LEASE_MS, JobConfig, LeftLabels, Portion
from rtolap.stored.metastore.leases import Leases
from rtolap.stored.metastore.load_jobs import LoadJob, Series
from rtolap.stored.metastore.offsets import Loaded, OffsetsRecord, OffsetsRecords


def given(at: Offsets, log: Mapping[int, LogRange]) -> Offsets:
    """Return the given offsets. Raises for a partition without an offset, which would begin at an arbitrary
    place."""
    if at.keys() != log.keys():
        raise DefinitionError(
            "not the partitions of the topic",
            expected=f"an offset of each of {sorted(log)}",
            found=f"partitions {sorted(at)}",
        )
    return dict(at)


def going_on(
    records: tuple[OffsetsRecord, ...], log: Mapping[int, LogRange], *, topic_id: str = ""
) -> Offsets | None:
    """Return the offsets at which loading goes on; None if nothing is recorded, and the definition decides.

    A partition that was never loaded is new, and is read from its beginning. `topic_id` is that of the log;
    "" means unknown. Raises Refused if no position is right.
    """
    if not records:
        return None
    known = records[-1].topic_id
    if known and topic_id and known != topic_id:
        raise Refused(
            "the topic is another one: it was deleted and recreated",
            expected=f"topic id {known}",
            found=topic_id,
            action="without `--go-on` all of the new topic is loaded, with `--at` from where you choose",
        )
    row = list(takewhile(lambda record: record.loaded, records))
    at = row[-1].end_offsets if row else records[0].start_offsets
    if beyond := [record for record in records[len(row) :] if record.loaded]:
        hole = records[len(row)]
        raise Refused(
            f"batch {beyond[0].sequence_id} is loaded and batch {hole.sequence_id} before it is not",
            expected="no loaded batch behind one that is not",
            action=f"`start` it if that can be mended; else choose: `--at {_words(hole.start_offsets)}` loads"
            f" later ones again, `--at {_words(beyond[-1].end_offsets)}` leaves out what is not loaded",
        )
    if other := [p for p, offset in at.items() if p not in log or offset > log[p].end]:
        raise Refused(
            f"partitions {sorted(other)} hold less than is loaded: the topic is another one",
            expected=f"a log up to {_words(at)}",
            found=_words({partition: known.end for partition, known in log.items()}),
            action="without `--go-on` all of the new topic is loaded",
        )
    return {partition: max(at.get(partition, 0), known.start) for partition, known in log.items()}


def settle_batch(
    leases: Leases,
    records: OffsetsRecords,
    job_id: str,
    batch: int,
    *,
    loaded: bool,
    letters_of: str | None = None,
) -> OffsetsRecord:
    """Record whether the rows of a sent batch are in the table, as a person has found out. `letters_of`: the
    job whose dead letters its refused records become, None for no job. Raises NotYet while a process owns the
    job, or the share, whose id `job_id` is; Refused where the outcome is known.
    """
    lease = leases.acquire(job_id, f"settle/{uuid4().hex}", LEASE_MS)
    try:
        known = next((each for each in records.all(job_id) if each.sequence_id == batch), None)
        if known is None or known.loaded or known.attempts == 0:
            raise Refused(
                f"batch {batch} of loader {job_id} has nothing to settle",
                expected="a batch that was sent and is not known to be loaded",
                found="no such batch" if known is None else "loaded" if known.loaded else "never sent",
            )
        if loaded:
            return records.mark_loaded(lease, batch, Loaded(None, None), job_id=letters_of)
        return records.mark_unsent(lease, batch)
    finally:
        leases.release(lease)


def going_on_of_all(
    series: tuple[Series, ...], log: Mapping[int, LogRange], *, topic_id: str = ""
) -> Offsets | None:
    """Return as `going_on`, for a job that may be divided: of each share for its own partitions."""
    if len(series) == 1:
        return going_on(series[0], log, topic_id=topic_id)
    at: Offsets = {}
    for number, records in enumerate(series):
        portion = Portion(number, len(series))
        own = {partition: known for partition, known in log.items() if portion.has_partition(partition)}
        at |= going_on(records, own, topic_id=topic_id) or {}
    return at


def going_on_as_defined(
    config: JobConfig, series: tuple[Series, ...], log: Mapping[int, LogRange], *, topic_id: str = ""
) -> Offsets | None:
    """Return as `going_on_of_all`; of an incarnation that was never begun, where it was to begin."""
    at = going_on_of_all(series, log, topic_id=topic_id)
    return at or config.start_at


def left_labels_of_all(series: tuple[Series, ...], job: LoadJob) -> tuple[LeftLabels, ...]:
    """Return the labels that a job left, of each share where it is divided."""
    shares = (None,) if job.shares is None else range(job.shares)
    found = (
        left_labels(records, job.incarnation, share) for share, records in zip(shares, series, strict=True)
    )
    return tuple(left for left in found if left is not None)


def left_labels(
    records: tuple[OffsetsRecord, ...], incarnation: int, share: int | None = None
) -> LeftLabels | None:
    """Return the labels that a job left. The sink keeps a label until it is acknowledged, and the records
    that name it are deleted."""
    sent = [record for record in takewhile(lambda record: record.loaded, records) if record.attempts]
    if not sent:
        return None
    loaded_at_ms = max(record.loaded_at_ms or 0 for record in sent)
    return LeftLabels(incarnation, sent[0].sequence_id, sent[-1].sequence_id, loaded_at_ms, share)


def _words(offsets: Offsets) -> str:
    return ",".join(f"{partition}={at}" for partition, at in sorted(offsets.items()))
