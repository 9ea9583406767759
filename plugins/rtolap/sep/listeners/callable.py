"""The listener that calls Python: a function of an installed distribution, on lanes by row.

[project.entry-points."rtolap.sep.listeners"]              EditBatch → None; an exception means again

`events` of the batch has the column `late` too. Lanes are threads that take events side by side, those of one
row always on the same one, in their order.

What was delivered is noted after it. So events are delivered once, but for those that were under way when the
process was killed: these are delivered again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rtolap.base.errors import NotLeader, Unavailable
from rtolap.sep.delivery.journal import Journal
from rtolap.sep.delivery.listener import DeliveryOutcome, EventGroup, Failure
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.events.entry_points import load_function

LISTENERS: Final = "rtolap.sep.listeners"
BATCH_EVENTS = 100
REASON_CHARS_MAX = 500


class CallableListener:
    """A listener that calls a Python function. The threads of the lanes call `process_events`."""

    def __init__(
        self,
        process_events: Callable[[EditBatch], object],
        lanes: int = 4,
        *,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> None:
        self._lanes = Lanes(lanes, process_events, may_begin=may_begin)

    @classmethod
    def load(
        cls, name: str, lanes: int = 4, *, may_begin: Callable[[], bool] = lambda: True
    ) -> CallableListener:
        """Load a listener. Raises NotFound where no installed distribution declares one of this name."""
        return cls(load_function(LISTENERS, name), lanes, may_begin=may_begin)

    def deliver(self, group: EventGroup) -> DeliveryOutcome:
        outcome = self._lanes.run(group)
        if outcome.delivered.any():
            group.commit(outcome.delivered, ())
        return outcome

    def recover(self, journal: Journal) -> None:
        """Recover. Work that was under way in an earlier process may not be done, so it is due again."""

    def close(self) -> None:
        self._lanes.close()


class Lanes:
    """Calls `process` with batches of events, which have the column `late`; a row is always in the same lane.

    If `process` raises, the batch is due again. `may_begin` is asked before each batch: nothing fences a
    function, so a process that was replaced while it stood still must not begin another one.
    """

    def __init__(
        self,
        count: int,
        process: Callable[[EditBatch], object],
        *,
        batch_events: int = BATCH_EVENTS,
        monotonic_s: Callable[[], float] = time.monotonic,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> None:
        self._may_begin = may_begin
        self._count = count
        self._process = process
        self._batch_events = batch_events
        self._monotonic_s = monotonic_s
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="sep-lane")

    def run(self, group: EventGroup) -> DeliveryOutcome:
        """Wait for all lanes. A lane ends at the first batch that fails, or at an event whose time is over.

        Unavailable, which a lane has raised, goes on once all have ended: nothing is wrong with the events.
        """
        outcome = DeliveryOutcome(np.zeros(group.batch.num_events, bool))
        away: Unavailable | None = None
        rows = group.batch.events["row"].dictionary_encode().indices.to_numpy()
        lanes = [np.flatnonzero(rows % self._count == lane) for lane in range(self._count)]
        running = [
            self._pool.submit(self._run_lane, group, places, outcome) for places in lanes if len(places)
        ]
        for lane in running:
            away = lane.result() or away
        if away is not None and not outcome.delivered.any():
            raise away
        return outcome

    def close(self) -> None:
        self._pool.shutdown()

    def _run_lane(
        self, group: EventGroup, places: NDArray[np.int64], outcome: DeliveryOutcome
    ) -> Unavailable | None:
        own, begun = group.batch.take(places).with_late(group.late[places]), 0
        for some in self._batches(places, group.singly):
            if self._monotonic_s() >= group.deadlines_s[some].min():
                return None
            if not self._may_begin():
                return NotLeader("this process may have been replaced while it stood still")
            try:
                self._process(own.slice(begun, len(some)))
            except Unavailable as error:
                return error
            except Exception as error:  # noqa: BLE001 a user's code may raise anything; it is reported
                reason = f"{type(error).__name__}: {error}"[:REASON_CHARS_MAX]
                for place in some.tolist():
                    outcome.failures[place] = Failure(reason, alone=len(some) == 1)
                return None
            outcome.delivered[some] = True
            begun += len(some)
        return None

    def _batches(self, places: NDArray[np.int64], singly: NDArray[np.bool_]) -> Iterator[NDArray[np.int64]]:
        alone = singly[places]
        if not alone.any():
            for first in range(0, len(places), self._batch_events):
                yield places[first : first + self._batch_events]
            return
        borders = np.flatnonzero(alone | np.concatenate(([False], alone[:-1])))
        for run in np.split(places, borders):
            for first in range(0, len(run), self._batch_events):
                yield run[first : first + self._batch_events]
