"""The listener that calls Python: a function of an installed distribution, on lanes by row.

[project.entry-points."rtolap.sep.listeners"]              EditBatch → None; an exception means again

`events` of the batch has the column `late` too.

What was delivered is noted after it. So events are delivered once, but for those that were under way when the
process was killed: these are delivered again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rtolap.sep.delivery.journal import Journal
from rtolap.sep.delivery.lanes import Lanes
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.events.entry_points import load_function
from rtolap.sep.listeners.listener import EventGroup, Outcome

LISTENERS: Final = "rtolap.sep.listeners"


class CallableListener:
    """Listener. `process_events` is called from the threads of the lanes."""

    def __init__(self, process_events: Callable[[EditBatch], object], lanes: int = 4) -> None:
        self._lanes = Lanes(lanes, process_events)

    @classmethod
    def load(cls, name: str, lanes: int = 4) -> CallableListener:
        """NotFound: no installed distribution declares a listener of this name."""
        return cls(load_function(LISTENERS, name), lanes)

    def deliver(self, group: EventGroup) -> Outcome:
        outcome = self._lanes.run(group)
        if outcome.delivered.any():
            group.commit(outcome.delivered, ())
        return outcome

    def recover(self, journal: Journal) -> None:
        """Work that was under way in an earlier process is not known to be done: it is due again."""

    def close(self) -> None:
        self._lanes.close()
