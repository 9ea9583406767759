"""Decides whether a batch is history, and which of its segments cannot become so. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rtolap.airflow.rebuilt import FAILED_AFTER_S
from rtolap.protocols.coordinator.messages import BatchProgress


class BatchOutcome(NamedTuple):
    """The state of a batch.

    Attributes:
        failed: why it will not be history whole, by segment or by the batch's id; empty while it may.
    """

    is_done: bool
    failed: Mapping[str, str]
    text: str


class BatchWatch:
    """Looks at a batch again and again. A segment has failed when its builds did for `failed_after_s`, the
    batch when a segment was withdrawn, purged or replaced by another batch."""

    def __init__(self, failed_after_s: float = FAILED_AFTER_S) -> None:
        self._failed_after_s = failed_after_s
        self._failing_since_s: dict[str, float] = {}

    def look(self, progress: BatchProgress, now_s: float) -> BatchOutcome:
        failed = {
            name: f"its builds fail: {error}"
            for name, error in progress.failed.items()
            if now_s - self._failing_since_s.setdefault(name, now_s) >= self._failed_after_s
        }
        if progress.left:
            failed[progress.batch] = (
                f"{progress.left} segments are the batch's no more: withdrawn, purged, or replaced by another"
            )
        text = f"{progress.ready} of {len(progress.segments)} segments of batch {progress.batch} are READY"
        if progress.building:
            text += f", {len(progress.building)} wait to be built, while rtolap_segment_build is unpaused"
        return BatchOutcome(progress.ready == len(progress.segments), failed, text)
