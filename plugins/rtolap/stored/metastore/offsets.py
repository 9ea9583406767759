"""Batches that a job has sent: one record per batch, its label tied to the offsets of all partitions.

A batch, numbered by what a crash after each step leaves behind:

    1. insert         a record that is not loaded: its label's state says whether the request ever came
    2. the request    the same
    3. mark_loaded    loaded, and not committed while one before it is not
    4. commit         one transaction marks the end of the longest row of loaded ones, without a hole, as
                      committed, and deletes those before it; the newest loaded one always stays, because
                      where to read on is in it

Every write is fenced by the lease of the job: an owner that was deposed changes nothing. Records carry the
epoch in which they were last written, for people.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import sqlalchemy as sa

from rtolap.base.decoding import convert, decode_json
from rtolap.base.errors import CommitConflict, DefinitionError, NotFound, Refused
from rtolap.model.leader_epochs import LeaderEpochs, PartitionEpochs
from rtolap.stored.metastore import schema
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.dead_letter_sets import (
    BatchRefusal,
    add_dead_letters,
    noted_refusal,
    refusal_noted,
)
from rtolap.stored.metastore.leases import Lease, Leases
from rtolap.stored.metastore.places import Places
from rtolap.stored.metastore.schema import checked_name
from rtolap.stored.metastore.schema import offsets_record as _o

_NO_EPOCHS: PartitionEpochs = {}


class OffsetsRecord(msgspec.Struct, frozen=True):
    """A batch of a job: the offsets in [start, end) of all partitions of the topic, or of the share.

    Attributes:
        job_id: the job; a share's id where the job is divided.
        payload_sha256: the checksum of the sent rows; None before they are sent.
        topic_id: the topic in which the offsets count; None where it is not known.
        end_epochs: the leader epochs of what was read up to `end_offsets`, where they are known.
        refused: the records that its requests left out, as `dead_letters` writes them; None for none.
    """

    job_id: str
    sequence_id: int
    epoch: int
    label: str
    start_offsets: dict[int, int]
    end_offsets: dict[int, int]
    loaded: bool = False
    committed: bool = False
    txn_id: int | None = None
    row_count: int | None = None
    filtered_rows: int | None = None
    payload_sha256: str | None = None
    error_url: str | None = None
    attempts: int = 0
    first_sent_at_ms: int | None = None
    loaded_at_ms: int | None = None
    topic_id: str | None = None
    end_epochs: dict[int, LeaderEpochs] = {}
    refused: str | None = None


class Loaded(msgspec.Struct, frozen=True):
    """Figures of the response to a request; None where only the label's state shows that it is loaded."""

    txn_id: int | None
    row_count: int | None
    filtered_rows: int = 0
    error_url: str | None = None


class OffsetsRecords:
    """Records of jobs, or of the shares of divided jobs. A lease says whose: its name is their `job_id`."""

    def __init__(self, ledger: Ledger, *, of_shares: bool = False) -> None:
        self._ledger = ledger
        self._leases = Leases(ledger, schema.load_share if of_shares else schema.load_job)

    def insert(
        self,
        lease: Lease,
        sequence_id: int,
        label: str,
        start_offsets: Mapping[int, int],
        end_offsets: Mapping[int, int],
        *,
        topic_id: str | None = None,
        end_epochs: PartitionEpochs = _NO_EPOCHS,
    ) -> OffsetsRecord:
        """Record a batch, before its request. Raises Refused unless it goes on, without a hole, where the one
        before it ends; a partition that is new begins where it does. CommitConflict: the label or the number
        is taken."""
        checked_name("label", label)
        _check_ranges(label, start_offsets, end_offsets)
        record = OffsetsRecord(
            lease.name,
            sequence_id,
            lease.epoch,
            label,
            dict(start_offsets),
            dict(end_offsets),
            topic_id=topic_id,
            end_epochs=dict(end_epochs),
        )

        def work(connection: sa.Connection, now_ms: int) -> OffsetsRecord:
            before = _records(connection, _LAST, of_job=lease.name)
            if before and before[0].sequence_id >= sequence_id:
                raise CommitConflict(f"batch {sequence_id} of {lease.name} is recorded already")
            if before:
                _check_follows(before[0], record)
            insert_record(connection, record)
            return record

        return self._leases.write(lease, f"record batch {sequence_id} of {lease.name}", OffsetsRecord, work)

    def mark_sent(
        self,
        lease: Lease,
        sequence_id: int,
        payload_sha256: str | None = None,
        refused: Places | None = None,
    ) -> OffsetsRecord:
        """Count an attempt right before a request goes out, and note which records it leaves out, unless
        `refused` is None. Raises Refused for other content than before, because the label would stand for
        two."""

        def work(connection: sa.Connection, now_ms: int) -> OffsetsRecord:
            record = _get(connection, lease.name, sequence_id)
            if (
                None not in (record.payload_sha256, payload_sha256)
                and record.payload_sha256 != payload_sha256
            ):
                raise Refused(
                    f"batch {sequence_id} of {lease.name} cannot be sent again under its label",
                    expected=f"content {record.payload_sha256}",
                    found=payload_sha256,
                )
            self._set(
                connection,
                lease,
                sequence_id,
                attempts=record.attempts + 1,
                refused=record.refused
                if refused is None
                else noted_refusal(record.refused, record.attempts, refused),
                first_sent_at_ms=record.first_sent_at_ms or now_ms,
                payload_sha256=payload_sha256 or record.payload_sha256,
            )
            return _get(connection, lease.name, sequence_id)

        return self._leases.write(lease, f"note a request of {lease.name}", OffsetsRecord, work)

    def mark_loaded(
        self,
        lease: Lease,
        sequence_id: int,
        answer: Loaded,
        *,
        job_id: str | None = None,
        refused: BatchRefusal | None = None,
        taken: bool = False,
    ) -> OffsetsRecord:
        """Note that its rows are in the table. Harmless when it is known already: the first answer stays.

        The records that it left out become dead letters of `job_id` in the same transaction. `refused` is
        what the last request has left out, or would have; with `taken` it is known that this one was taken.
        Else it counts as one more of the requests that were noted.
        """

        def work(connection: sa.Connection, now_ms: int) -> OffsetsRecord:
            record = _get(connection, lease.name, sequence_id)
            if not record.loaded:
                values = msgspec.structs.asdict(answer)
                self._set(connection, lease, sequence_id, loaded=1, loaded_at_ms=now_ms, **values)
                if job_id is not None:
                    found = refused
                    if found is None or not taken:
                        noted, sha256 = record.refused, record.payload_sha256 or ""
                        found = refusal_noted(noted, record.attempts, sha256, refused)
                    add_dead_letters(connection, job_id, record.label, found, now_ms)
            return _get(connection, lease.name, sequence_id)

        return self._leases.write(lease, f"note a loaded batch of {lease.name}", OffsetsRecord, work)

    def mark_unsent(self, lease: Lease, sequence_id: int) -> OffsetsRecord:
        """Note that a person has found no rows of it in the table: it is as if no request had gone out.
        Raises Refused where it is known to be loaded."""

        def work(connection: sa.Connection, now_ms: int) -> OffsetsRecord:
            record = _get(connection, lease.name, sequence_id)
            if record.loaded:
                raise Refused(f"batch {sequence_id} of {lease.name} is loaded")
            self._set(connection, lease, sequence_id, attempts=0, first_sent_at_ms=None)
            return _get(connection, lease.name, sequence_id)

        return self._leases.write(
            lease, f"note that a batch of {lease.name} is not loaded", OffsetsRecord, work
        )

    def commit(self, lease: Lease, *, keep_from: int | None = None) -> int | None:
        """Mark the end of the longest row of loaded records as committed and delete those before it, except
        from number `keep_from` on. The number of the committed record, None while the very first is not
        loaded."""

        def work(connection: sa.Connection, now_ms: int) -> int | None:
            pending = sa.select(sa.func.min(_o.c.sequence_id)).where(
                _o.c.job_id == lease.name, _o.c.loaded == 0
            )
            hole = connection.scalar(pending)
            ready = sa.select(sa.func.max(_o.c.sequence_id)).where(
                _o.c.job_id == lease.name, _o.c.loaded == 1
            )
            last = connection.scalar(ready if hole is None else ready.where(_o.c.sequence_id < hole))
            if last is None:
                return None
            self._set(connection, lease, last, committed=1)
            below = last if keep_from is None else min(last, keep_from)
            older = sa.delete(_o).where(_o.c.job_id == lease.name, _o.c.sequence_id < below)
            connection.execute(older)
            return int(last)

        return self._leases.write(lease, f"commit offsets of {lease.name}", int | None, work)  # type: ignore[arg-type]

    def withdraw(self, lease: Lease, first: int) -> int:
        """Delete the batches from number `first` on, whose records the topic has lost; return how many.
        Refused, and nothing is deleted, where one of them was sent or is loaded."""

        def work(connection: sa.Connection, now_ms: int) -> int:
            later = (_o.c.job_id == lease.name) & (_o.c.sequence_id >= first)
            sent = sa.select(sa.func.min(_o.c.sequence_id)).where(
                later, (_o.c.attempts > 0) | (_o.c.loaded == 1)
            )
            if (number := connection.scalar(sent)) is not None:
                raise Refused(
                    f"batch {number} of {lease.name} cannot be taken back",
                    expected="batches of which nothing was sent",
                    found="one that was sent, or is loaded",
                )
            return int(connection.execute(sa.delete(_o).where(later)).rowcount)

        return self._leases.write(lease, f"withdraw batches of {lease.name}", int, work)

    def all(self, job_id: str) -> tuple[OffsetsRecord, ...]:
        """Return all records in ascending order."""

        def work(connection: sa.Connection) -> tuple[OffsetsRecord, ...]:
            return records_of(connection, job_id)

        return self._ledger.read(f"read what {job_id} has sent", work)

    def _set(self, connection: sa.Connection, lease: Lease, sequence_id: int, **values: object) -> None:
        own_row = (_o.c.job_id == lease.name) & (_o.c.sequence_id == sequence_id)
        connection.execute(sa.update(_o).where(own_row).values(epoch=lease.epoch, **values))


def insert_record(connection: sa.Connection, record: OffsetsRecord) -> None:
    """Write a record as it is. Raises IntegrityError where its label or its number is taken."""
    values = msgspec.structs.asdict(record)
    for name in ("start_offsets", "end_offsets", "end_epochs"):
        values[name] = msgspec.json.encode(values[name]).decode()
    connection.execute(sa.insert(_o).values(**values))


def records_of(connection: sa.Connection, job_id: str) -> tuple[OffsetsRecord, ...]:
    """Return the records in ascending order."""
    return _records(connection, _ALL, of_job=job_id)


def _check_ranges(label: str, start: Mapping[int, int], end: Mapping[int, int]) -> None:
    backwards = sorted(partition for partition in start if end.get(partition, -1) < start[partition])
    if start.keys() != end.keys() or backwards:
        raise DefinitionError(
            f"the offsets of {label} are no ranges",
            expected="start and end of the same partitions, end not below start",
            found=f"start {dict(start)}, end {dict(end)}",
        )


def _check_follows(before: OffsetsRecord, record: OffsetsRecord) -> None:
    moved = {
        partition: record.start_offsets.get(partition)
        for partition, end in before.end_offsets.items()
        if record.start_offsets.get(partition) != end
    }
    if record.sequence_id != before.sequence_id + 1 or moved:
        raise Refused(
            f"batch {record.sequence_id} of {record.job_id} would leave a hole or an overlap",
            expected=f"batch {before.sequence_id + 1} from {before.end_offsets}",
            found=f"from {record.start_offsets}",
        )


# Every write of an owner sends one of them: to put them together each time takes longer than to send them.
_OF_JOB: sa.Select[tuple[object, ...]] = sa.select(_o).where(_o.c.job_id == sa.bindparam("of_job"))
_ALL = _OF_JOB.order_by(_o.c.sequence_id)
_LAST = _OF_JOB.order_by(_o.c.sequence_id.desc()).limit(1)
_ONE = _OF_JOB.where(_o.c.sequence_id == sa.bindparam("of_batch"))


def _get(connection: sa.Connection, job_id: str, sequence_id: int) -> OffsetsRecord:
    records = _records(connection, _ONE, of_job=job_id, of_batch=sequence_id)
    if not records:
        raise NotFound(f"there is no record of batch {sequence_id} of {job_id}")
    return records[0]


def _records(
    connection: sa.Connection, statement: sa.Select[tuple[object, ...]], **values_of: str | int
) -> tuple[OffsetsRecord, ...]:
    records = []
    for row in connection.execute(statement, values_of):
        values = schema.values(row._mapping)
        for name in ("start_offsets", "end_offsets"):
            values[name] = decode_json(values[name], dict[int, int])
        values["end_epochs"] = decode_json(values["end_epochs"] or b"{}", dict[int, LeaderEpochs])
        records.append(convert(values, OffsetsRecord, strict=False))
    return tuple(records)
