"""Events that fail: how often each did, when it is tried again, and what is kept of one that is given up.

    retry   for ever, after a pause that doubles from 1 s to a minute
    skip    kept as a dead letter after so many tries; then it counts as delivered
    stop    after so many tries nothing more is taken, until a person starts the subscription again

Only tries of an event alone count: an event that failed in company is tried alone the next time, so that its
neighbours are not blamed. An event whose pause is not over holds back later ones of its row and no others.

A dead letter is a record that holds its event whole, with where it came from and why; `rtolap sep
dead-letters` reads them. As a record's topic its headers name the table, as its offset the sequence id. The
value is the event as JSON: its cells with families, qualifiers, values and tags in base64.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from rtolap.events.rejects import DETAIL_CHARS_MAX
from rtolap.kafka.transactions import Headers, OutColumns
from rtolap.sep.events.edit_batch import EditBatch

Mask = NDArray[np.bool_]
EventKey = tuple[str, int, bytes]  # region, sequence id, row

PAUSE_MAX_S = 60.0
EVENTS_MAX = 10_000  # more that fail at once are tried like new ones
_LETTER_BYTES_MAX = (
    12 << 20
)  # of a dead letter, below what the producer takes; of a larger one the beginning is kept


class PoisonPolicy(NamedTuple):
    policy: Literal["retry", "skip", "stop"] = "retry"
    tries: int = 10


@dataclass
class FailingEvent:
    """`tries`: so often alone; `due_s`: not before, by the monotonic clock."""

    reason: str
    tries: int = 0
    due_s: float = 0.0


def pause_s(tries: int) -> float:
    return float(min(PAUSE_MAX_S, 2.0 ** max(0, min(tries, 10) - 1)))


class FailingEvents:
    """Not thread-safe."""

    def __init__(self, policy: PoisonPolicy) -> None:
        self.policy = policy
        self.events: OrderedDict[EventKey, FailingEvent] = OrderedDict()

    def __len__(self) -> int:
        return len(self.events)

    def places(self, batch: EditBatch) -> dict[int, FailingEvent]:
        """Return those of the batch, by their place."""
        if not self.events:
            return {}
        ids = np.array([sequence_id for _, sequence_id, _ in self.events], np.int64)
        suspects = np.flatnonzero(np.isin(batch.events["sequence_id"].to_numpy(), ids))
        failing = {int(place): self.events.get(key_of(batch, int(place))) for place in suspects}
        return {place: event for place, event in failing.items() if event is not None}

    def failed(self, key: EventKey, reason: str, now_s: float, *, alone: bool) -> bool:
        """Note it; return True if the event is to be given up, by the policy."""
        event = self.events.setdefault(key, FailingEvent(reason))
        event.reason = reason
        if alone:
            event.tries += 1
            event.due_s = now_s + pause_s(event.tries)
        while len(self.events) > EVENTS_MAX:
            self.events.popitem(last=False)
        return self.policy.policy != "retry" and event.tries >= self.policy.tries

    def done(self, key: EventKey) -> None:
        self.events.pop(key, None)


def key_of(batch: EditBatch, place: int) -> EventKey:
    events = batch.events
    return (
        str(events["region"][place].as_py()),
        int(events["sequence_id"][place].as_py()),
        bytes(events["row"][place].as_py()),
    )


def held_back(batch: EditBatch, blocked: set[int]) -> Mask:
    """Return the blocked events and those after them of the same table and row."""
    held = np.zeros(batch.num_events, bool)
    if not blocked:
        return held
    rows = batch.events["row"].to_pylist()
    tables = batch.events["table"].to_pylist()
    waiting: set[tuple[str, bytes]] = set()
    for place, row in enumerate(zip(tables, rows, strict=True)):
        if place in blocked:
            waiting.add(row)
        held[place] = row in waiting
    return held


def dead_letter_topic(subscription: str) -> str:
    return f"rtolap-sep-{subscription}.dead-letters"


def dead_letters(topic: str, batch: EditBatch, reasons: Mapping[int, str]) -> OutColumns:
    """One record for each event of `reasons`, by its place in the batch."""
    chosen = batch.take(np.fromiter(reasons, np.int64, len(reasons)))
    cells = chosen.cells.to_pylist()
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[Headers] = []
    for event, reason in zip(chosen.events.to_pylist(), reasons.values(), strict=True):
        first = event["first_cell"]
        value = _letter_value(event, cells[first : first + event["cell_count"]])
        about = {
            "topic": event["table"].encode(),
            "partition": b"-1",
            "offset": str(event["sequence_id"]).encode(),
            "region": event["region"].encode(),
            "reason": b"not_delivered",
            "detail": reason[:DETAIL_CHARS_MAX].encode("utf-8", "replace"),
        }
        if len(value) > _LETTER_BYTES_MAX:
            about["value_bytes"] = str(len(value)).encode()
            value = value[:_LETTER_BYTES_MAX]
        keys.append(b"%s/%s/%d/" % (about["topic"], about["region"], event["sequence_id"]) + event["row"])
        values.append(value)
        headers.append(list(about.items()))
    return OutColumns(topic, keys, values, headers)


def _letter_value(event: dict[str, Any], cells: list[dict[str, Any]]) -> bytes:
    known = {name: event[name] for name in ("table", "region", "sequence_id", "write_time_ms", "row")}
    whole = [{name: cell[name] for name in cell if name != "event"} for cell in cells]
    return msgspec.json.encode({**known, "cells": whole})
