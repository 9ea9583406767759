"""How far a loader is, by its ledger."""

from __future__ import annotations

from rtolap.model.offsets import Offsets
from rtolap.stored.metastore.offsets import OffsetsRecords


def loaded_offsets(records: OffsetsRecords, job: str) -> Offsets:
    """Return the end of the longest row of loaded batches."""
    offsets: Offsets = {}
    for record in records.all(job):
        if not record.loaded:
            break
        offsets = record.end_offsets
    return offsets
