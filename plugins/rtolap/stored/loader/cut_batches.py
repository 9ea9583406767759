"""Batches whose records the topic's log has lost: taken back where nothing of them was sent."""

from __future__ import annotations

from rtolap.base.errors import Refused
from rtolap.kafka.interfaces import LogTruncated
from rtolap.stored.loader.job import Ownership
from rtolap.stored.loader.states import truncated
from rtolap.stored.metastore.offsets import OffsetsRecord, OffsetsRecords


def first_beyond(records: tuple[OffsetsRecord, ...], error: LogTruncated) -> int | None:
    """Return the number of the first batch that ends beyond a cut; None where none does."""
    at = {cut.partition: cut.diverges for cut in error.cuts}
    return next(
        (
            record.sequence_id
            for record in records
            if any(record.end_offsets.get(partition, 0) > offset for partition, offset in at.items())
        ),
        None,
    )


def take_back(
    ledger: OffsetsRecords, ownership: Ownership, records: tuple[OffsetsRecord, ...], error: LogTruncated
) -> tuple[OffsetsRecord, ...]:
    """Delete the batches that end beyond a cut and return those before them. Raises Stopped, and nothing is
    deleted, where one of them was sent or is loaded."""
    first = first_beyond(records, error)
    if first is None:
        return records
    if first == records[0].sequence_id:
        raise truncated(error, "all batches that are recorded end beyond that") from error
    try:
        ledger.withdraw(ownership.lease, first)
    except Refused as sent:
        raise truncated(error, sent.message) from error
    return tuple(record for record in records if record.sequence_id < first)
