"""The limits at which a cube's consumer waits: too much waits for history, the disk is nearly full, a flush
failed.

A consumer that waits for history still reads what was promised (see `promises`). In the other two cases
reading would make things worse.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from rtolap.base.clock import Clock
from rtolap.cubes.receiver.local.tables import LocalState
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.metadata.records import SegmentRecord
from rtolap.model.cube import Schema
from rtolap.model.segment import SegmentState

LOOK_EVERY_S = 1.0
_WAITING = (SegmentState.IMMUTABLE, SegmentState.REMOTE_PERSISTED)


class ConsumerLimits:
    """`reason` is None while consuming may go on. It clears itself."""

    def __init__(self, settings: ReceiverSettings, folder: Path, clock: Clock) -> None:
        self.reason: str | None = None
        self._waits_for_history = False
        self._settings = settings
        self._folder = folder
        self._clock = clock
        self._looked_at_s = float("-inf")
        self._disk_low = False
        self._flush: str | None = None
        self._flush_again_s = 0.0

    @property
    def reads_promised(self) -> bool:
        """True if the reason permits to read what was promised."""
        return self._waits_for_history and self._flush is None

    def flush_failed(self, error: Exception) -> None:
        self._flush = f"a checkpoint could not be written: {error}"
        self._flush_again_s = self._clock.monotonic_s() + self._settings.retry_s
        self.reason = self._flush

    def flush_worked(self) -> None:
        self._flush = None

    @property
    def flush_failing(self) -> bool:
        """True if the last checkpoint could not be written, or the next one cannot."""
        return self._flush is not None

    @property
    def flush_due(self) -> bool:
        """True if a failed checkpoint has to be tried again now."""
        return self._flush is not None and self._clock.monotonic_s() >= self._flush_again_s

    def observe(self, state: LocalState, schema: Schema, records: Mapping[int, SegmentRecord]) -> None:
        now_s = self._clock.monotonic_s()
        if self._flush is not None:
            self.reason = self._flush
            return
        if now_s - self._looked_at_s < LOOK_EVERY_S:
            return
        self._looked_at_s = now_s
        disk, unbuilt = self._disk(), self._unbuilt(state, schema, records)
        self.reason = disk or unbuilt
        self._waits_for_history = disk is None and unbuilt is not None

    def _disk(self) -> str | None:
        least = self._settings.disk_free_bytes_min * (2 if self._disk_low else 1)
        free = shutil.disk_usage(self._folder).free
        self._disk_low = free < least
        return f"the disk has {free} bytes free, {least} are needed" if self._disk_low else None

    def _unbuilt(self, state: LocalState, schema: Schema, records: Mapping[int, SegmentRecord]) -> str | None:
        if schema.cube.retention.policy == "PURGE":
            return None  # nothing is ever built; age bounds what is stored
        waiting = sum(
            1 for start in state.segments if (record := records.get(start)) and record.state in _WAITING
        )
        most = self._settings.unbuilt_segments_max
        return f"{waiting} closed segments wait for history, at most {most} may" if waiting >= most else None
