"""The end of what can be read in the table: a batch that is loaded is committed, and visible a while later.

An answer `Success` says both. Any other way to learn that a batch is loaded says the first only: then its
label is looked up until it is visible.
"""

from __future__ import annotations

import threading

from rtolap.base.errors import RtolapError, Unavailable
from rtolap.model.loader import Loader
from rtolap.model.offsets import Offsets
from rtolap.protocols.stream_load.messages import LoadState
from rtolap.stored.loader.sink import Sink
from rtolap.stored.metastore.offsets import OffsetsRecord, OffsetsRecords

# A label goes only when it is given back or by time, and either only once its load is final.
_READABLE = (LoadState.VISIBLE, LoadState.UNKNOWN)


class Visible:
    """Tracks which batches are visible. Thread-safe.

    Attributes:
        sequence: all batches up to this one are known to be visible; -1 before the first.
        ends: the end offsets of that batch.
    """

    def __init__(self, loader: Loader, job: str, records: OffsetsRecords, sink: Sink) -> None:
        self.sequence = -1
        self.ends: Offsets = {}
        self._database = loader.database
        self._job = job
        self._records = records
        self._sink = sink
        self._reported: set[int] = set()
        self._lock, self._looking = threading.Lock(), threading.Lock()

    def note_visible(self, sequence: int) -> None:
        """Note the sink's word that this batch is visible."""
        with self._lock:
            self._reported.add(sequence)

    def poll(self) -> Offsets:
        """Return the end of the longest row of visible batches. Raises the ledger's errors, and Unavailable
        where the sink does not give it.
        """
        with self._looking:
            for record in self._records.all(self._job):
                if record.sequence_id <= self.sequence:
                    continue
                if not (record.loaded and self._is_visible(record)):
                    break
                self.ends, self.sequence = record.end_offsets, record.sequence_id
                with self._lock:
                    self._reported.discard(record.sequence_id)
            return self.ends

    def _is_visible(self, record: OffsetsRecord) -> bool:
        if record.attempts == 0:
            return True  # it had no rows
        with self._lock:
            if record.sequence_id in self._reported:
                return True
        try:
            return self._sink.state(self._database, record.label) in _READABLE
        except RtolapError as error:
            raise Unavailable(f"whether {record.label} can be read is not known", found=str(error)) from error
