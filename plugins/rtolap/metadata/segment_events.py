"""Steps of a segment's life in its record: the next state, and a line of the state history."""

from __future__ import annotations

import msgspec

from rtolap.metadata.records import HistoryEntry, SegmentRecord
from rtolap.model.offsets import Offsets
from rtolap.model.segment import SegmentEvent, transition

SHOWN_MAX = 8  # partitions of a vector in a line of the state history
HISTORY_ENTRIES_MAX = 40  # a record stays a few kilobytes; older lines are in the services' logs


def shown_vector(vector: Offsets) -> str:
    """Return a vector as a line of the state history has it."""
    if len(vector) <= SHOWN_MAX:
        return str(sorted(vector.items()))
    return f"{len(vector)} partitions"


def take_event(record: SegmentRecord, event: SegmentEvent, now_ms: int, note: str) -> SegmentRecord:
    """Return the record after the event. Raises IllegalTransition with its story."""
    state = transition(
        record.state, event, subject=f"segment {record.cube}/{record.name}", history=record.state_history
    )
    line = HistoryEntry(now_ms, event.value, state.value, note)
    state_history = (*record.state_history, line)[-HISTORY_ENTRIES_MAX:]
    return msgspec.structs.replace(record, state=state, state_history=state_history)
