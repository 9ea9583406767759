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

    `late`: older than what was delivered of their row's region before. `singly`: they failed before, and are
    to be tried alone. `deadlines_s`: by the monotonic clock; an event that has not begun by then does not.

    `commit(delivered, columns)` notes these events as delivered, in one transaction with the records of the
    columns; it may be called for disjoint masks. A listener that writes the journal itself notes
    `edits(delivered)` there, and then calls `noted(delivered)`.
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
    """`final`: another try would end the same way. `alone`: the event was tried by itself."""

    reason: str
    final: bool = False
    alone: bool = True


@dataclass
class Outcome:
    """`delivered` events are noted; the failed ones are named by their place; the others were held back, or
    the target does not take them now: `away` says why."""

    delivered: Mask
    failures: dict[int, Failure] = field(default_factory=dict)
    away: Unavailable | None = None


class Listener(Protocol):
    def deliver(self, group: EventGroup) -> Outcome:
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
