"""Up to where the table can be read: a batch that is loaded is committed, and visible a while later."""

from __future__ import annotations

from rtolap.base.errors import RtolapError, Unavailable
from rtolap.ledger.offsets import OffsetsRecord, OffsetsRecords
from rtolap.loader.sink import Sink
from rtolap.model.loader import Loader
from rtolap.model.offsets import Offsets
from rtolap.wire.stream_load import LoadState

# A label goes only when it is given back or by time, and either only once its load is final.
_READABLE = (LoadState.VISIBLE, LoadState.UNKNOWN)


class Visible:
    """Of one thread, except `sequence`: all batches up to it are known to be visible."""

    def __init__(self, loader: Loader, job: str, records: OffsetsRecords, sink: Sink) -> None:
        self.sequence = -1
        self._database = loader.database
        self._job = job
        self._records = records
        self._sink = sink
        self._ends: Offsets = {}

    def look(self) -> Offsets:
        """Where the longest row of visible batches ends; asks for each label until it is visible. Raises the
        ledger's errors, and Unavailable where the sink does not say."""
        for record in self._records.all(self._job):
            if record.sequence_id <= self.sequence:
                continue
            if not (record.loaded and self._is_visible(record)):
                break
            self._ends, self.sequence = record.end_offsets, record.sequence_id
        return self._ends

    def _is_visible(self, record: OffsetsRecord) -> bool:
        if record.attempts == 0:
            return True  # it had no rows
        try:
            return self._sink.state(self._database, record.label) in _READABLE
        except RtolapError as error:
            raise Unavailable(f"whether {record.label} can be read is not known", found=str(error)) from error
