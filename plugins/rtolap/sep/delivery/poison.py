"""Events that fail: how often each did, when it is tried again, and what follows.

    retry   after a pause that doubles from 1 s to a minute; after `apart_after_s` its row is set apart: it
            and later events of the row go to the dead letters, in order, and are replayed from there
    skip    a dead letter after so many tries; then it counts as delivered
    stop    after so many tries nothing more is taken, until a person starts the subscription again

Only tries of an event alone count: an event that failed in company is tried alone the next time, so that its
neighbours are not blamed. An event whose pause is not over holds back later ones of its row and no others.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtolap.sep.events.edit_batch import EditBatch

Mask = NDArray[np.bool_]
EventKey = tuple[str, int, bytes]  # region, sequence id, row

PAUSE_MAX_S = 60.0
APART_AFTER_S = 300.0
EVENTS_MAX = 200_000  # as many as may be delivered at once; more that fail are tried like new ones

Verdict = Literal["again", "give up", "set apart"]


class PoisonPolicy(NamedTuple):
    """The treatment of events that keep failing.

    Attributes:
        tries: the number of tries before `skip` and `stop` act.
        apart_after_s: how long `retry` tries before the row is set apart; 0 for ever.
    """

    policy: Literal["retry", "skip", "stop"] = "retry"
    tries: int = 10
    apart_after_s: float = APART_AFTER_S


@dataclass
class FailingEvent:
    """An event that keeps failing. Times are those of the monotonic clock.

    Attributes:
        tries: how often the event was tried alone.
        due_s: the earliest time of the next try.
        since_s: when the event failed first.
    """

    reason: str
    tries: int = 0
    due_s: float = 0.0
    since_s: float = 0.0


def pause_s(tries: int) -> float:
    return float(min(PAUSE_MAX_S, 2.0 ** max(0, min(tries, 10) - 1)))


class FailingEvents:
    """The events that keep failing. Not thread-safe."""

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

    def failed(self, key: EventKey, reason: str, now_s: float, *, alone: bool) -> Verdict:
        """Note it; return what the policy says."""
        event = self.events.setdefault(key, FailingEvent(reason))
        event.reason = reason
        if alone:
            event.tries += 1
            event.due_s = now_s + pause_s(event.tries)
            if event.tries == 1:
                event.since_s = now_s
        while len(self.events) > EVENTS_MAX:
            self.events.popitem(last=False)
        policy = self.policy
        if policy.policy != "retry":
            return "give up" if event.tries >= policy.tries else "again"
        is_over = event.tries > 1 and now_s - event.since_s >= policy.apart_after_s > 0
        return "set apart" if is_over else "again"

    def done(self, key: EventKey) -> None:
        self.events.pop(key, None)


def key_of(batch: EditBatch, place: int) -> EventKey:
    events = batch.events
    return (
        str(events["region"][place].as_py()),
        int(events["sequence_id"][place].as_py()),
        bytes(events["row"][place].as_py()),
    )


def blocked_events(batch: EditBatch, blocked: set[int]) -> Mask:
    """Return the blocked events and those after them of the same table and row."""
    blocked_mask = np.zeros(batch.num_events, bool)
    if not blocked:
        return blocked_mask
    rows = batch.events["row"].to_pylist()
    tables = batch.events["table"].to_pylist()
    waiting: set[tuple[str, bytes]] = set()
    for place, row in enumerate(zip(tables, rows, strict=True)):
        if place in blocked:
            waiting.add(row)
        blocked_mask[place] = row in waiting
    return blocked_mask
