"""The contract between delivery and a listener."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rtolap.base.errors import Unavailable
from rtolap.kafka.transactions import OutColumns
from rtolap.sep.delivery.edit_records import RegionEdits
from rtolap.sep.delivery.journal import Journal
from rtolap.sep.events.edit_batch import EditBatch

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class EventGroup:
    """New events of the calls that are served together, in the order of their sequence ids.

    Attributes:
        late: True for events older than an event of their row that was delivered before.
        singly: True for events that failed before and must be tried alone.
        deadlines_s: the time, by the monotonic clock, after which an event must not be started.
        commit: `commit(delivered, columns)` records the events as delivered, in one transaction with the
            records of the columns. It may be called repeatedly, with disjoint masks.
        edits: for a listener that writes the journal itself: `edits(delivered)` returns what it writes there.
        noted: such a listener calls `noted(delivered)` after it has written the journal.
    """

    batch: EditBatch
    late: Mask
    singly: Mask
    deadlines_s: NDArray[np.float64]
    commit: Callable[[Mask, Sequence[OutColumns]], None]
    edits: Callable[[Mask], list[RegionEdits]]
    noted: Callable[[Mask], None]


@dataclass(frozen=True)
class Failure:
    """The failure of an event.

    Attributes:
        final: True if another try would fail in the same way.
        alone: True if the event was tried by itself.
    """

    reason: str
    final: bool = False
    alone: bool = True


@dataclass
class DeliveryOutcome:
    """The result of a delivery. Events that are neither delivered nor failed are due again.

    Attributes:
        delivered: the delivered events; the journal has them.
        failures: the failed events, by their place in the group.
        away: why the target accepts nothing now; None while it does.
    """

    delivered: Mask
    failures: dict[int, Failure] = field(default_factory=dict)
    away: Unavailable | None = None


class Listener(Protocol):
    def deliver(self, group: EventGroup) -> DeliveryOutcome:
        """Deliver what can be delivered, events of one row one after the other: none behind one that failed.

        Whatever it raises means that the target does not take anything now: all is due again. NotLeader:
        another process delivers.
        """

    def recover(self, journal: Journal) -> None:
        """Settle what is open in the journal, by an earlier process or an earlier group. Unavailable: not
        yet."""

    def close(self) -> None: ...


@runtime_checkable
class MirrorsRows(Protocol):
    """A listener whose target holds rows, not events, may take rows without an event.

    `mirrors_rows`: it does.
    """

    @property
    def mirrors_rows(self) -> bool: ...
