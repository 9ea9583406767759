"""The progress of the hosts that log to each partition, as far as this receiver has read. Columns throughout.

A host's progress in a partition is the largest event time that was read of it there, an event counting no
further than its own record's timestamp. It covers everything that a state holds, and nothing else.

The progress of hosts in one partition, by their index, and which of it has not been reported yet.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.cubes.receiver.hosts.batch_progress import NEVER, HostProgressBatch, Int64s
from rtolap.protocols.watermark.messages import HOST_NAME_MAX, HOSTS_MAX
from rtolap.watermark.forgetting import worth_keeping

log = logging.getLogger(__name__)

_LOOK_EVERY_MS = 60_000  # of event time: whom to forget takes a look at all hosts


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The progress of one partition that is to be reported.

    Attributes:
        events: number of events read since the last report, by host.
    """

    hosts: tuple[str, ...]
    latest_ms: Int64s
    events: Int64s


class SavedHosts(msgspec.Struct, frozen=True):
    """Progress of hosts as a checkpoint stores it. All arrays are little-endian.

    Attributes:
        names: the names of all hosts, once.
        index: indices into `names` by partition, int32.
        latest_ms: instants by partition, int64.
        generations: generations by partition, int64; only for partitions that have any.
    """

    names: tuple[str, ...] = ()
    index: dict[int, bytes] = {}
    latest_ms: dict[int, bytes] = {}
    generations: dict[int, bytes] = {}


class HostProgress:
    """The progress of hosts, which the core thread owns. It takes 25 bytes per host and partition, and the
    names once.

    There are as many names as the watermark server takes of a source. Where they are used up, those are
    forgotten that no partition holds, and then hosts that have been silent for long (`forgetting`).
    """

    def __init__(self) -> None:
        self._warned = False
        self._looked: object = None
        self._names: list[str] = []
        self._known = pa.array([], pa.string())
        self._partitions: dict[int, HostColumns] = {}

    def took(self, batch: HostProgressBatch) -> dict[int, int]:
        """Add what was read of a batch, once its state is the one that a closing would use.

        Returns partition → events that move no host: their host is null, has no usable name, or is one too
        many.
        """
        at = self._indices(batch)
        lost = at < 0
        hostless = _sums(batch.partitions[lost], batch.events[lost])
        if hostless:
            self._warn()
        for partition in np.unique(batch.partitions[~lost]).tolist():
            rows = (batch.partitions == partition) & ~lost
            columns = self._partitions.setdefault(partition, HostColumns())
            columns.grow(len(self._names))
            columns.merge(at[rows], batch.latest_ms[rows], batch.events[rows], batch.generations[rows])
        return hostless

    def drain(self, partitions: Collection[int], *, whole: bool) -> dict[int, PartitionProgress]:
        """Return what has changed since the last time, or with `whole` all that is known; an entry for each
        of `partitions`, also where there is nothing to report."""
        return {partition: self._take(partition, whole) for partition in partitions}

    def keep_only(self, partitions: Collection[int]) -> None:
        """Forget the others, as the state does."""
        self._partitions = {p: columns for p, columns in self._partitions.items() if p in partitions}

    def latest_ms(self) -> dict[int, dict[str, int]]:
        """Return the progress by partition and host, for people and tests."""
        return {
            partition: {self._names[at]: int(columns.latest_ms[at]) for at in columns.seen().tolist()}
            for partition, columns in self._partitions.items()
        }

    # -- checkpoints ------------------------------------------------------------------------------------

    def saved(self) -> SavedHosts:
        seen = {partition: (columns.known(), columns) for partition, columns in self._partitions.items()}
        return SavedHosts(
            names=tuple(self._names),
            index={partition: at.astype("<i4").tobytes() for partition, (at, _) in seen.items()},
            latest_ms={p: columns.latest_ms[at].astype("<i8").tobytes() for p, (at, columns) in seen.items()},
            generations={
                p: columns.generations[at].astype("<i8").tobytes()
                for p, (at, columns) in seen.items()
                if columns.generations.any()
            },
        )

    def recover(self, saved: SavedHosts) -> None:
        self._name(list(saved.names))
        self._partitions = dict(self._recovered(saved))

    def _recovered(self, saved: SavedHosts) -> Iterator[tuple[int, HostColumns]]:
        for partition, packed in saved.index.items():
            columns = HostColumns()
            columns.grow(len(self._names))
            at = np.frombuffer(packed, "<i4")
            columns.latest_ms[at] = np.frombuffer(saved.latest_ms[partition], "<i8")
            if partition in saved.generations:
                columns.generations[at] = np.frombuffer(saved.generations[partition], "<i8")
            yield partition, columns

    # -- inside -----------------------------------------------------------------------------------------

    def _take(self, partition: int, whole: bool) -> PartitionProgress:
        columns = self._partitions.get(partition, HostColumns())
        at = columns.seen() if whole else np.flatnonzero(columns.changed & (columns.latest_ms != NEVER))
        taken = PartitionProgress(
            tuple(self._names[place] for place in at.tolist()), columns.latest_ms[at], columns.events[at]
        )
        columns.changed[:] = False
        columns.events[:] = 0
        return taken

    def _indices(self, batch: HostProgressBatch) -> Int64s:
        """Return the places of names, -1 for names that cannot be stored."""
        places = self._places(batch.hosts)
        fresh = _fresh(batch.hosts, places)
        if fresh and self._make_room(batch, len(fresh)):
            fresh = _fresh(batch.hosts, self._places(batch.hosts))
        usable = fresh[: max(HOSTS_MAX - len(self._names), 0)]
        if usable:
            self._name([*self._names, *usable])
        return self._places(batch.hosts) if fresh else places

    def _make_room(self, batch: HostProgressBatch, wanted: int) -> bool:
        """Return True if a host has been forgotten, so that places have changed."""
        if len(self._names) + wanted <= HOSTS_MAX:
            return False
        columns = list(self._partitions.values())
        newest = [column.latest_ms.max(initial=NEVER) for column in columns]
        newest_ms = int(max(*newest, batch.latest_ms.max(initial=NEVER), NEVER))
        look = (newest_ms // _LOOK_EVERY_MS, frozenset(self._partitions))
        if look == self._looked:
            return False
        self._looked = look
        count = len(self._names)
        latest = (column.latest_ms for column in columns)
        keep = worth_keeping(latest, count, max(HOSTS_MAX - wanted, 0), newest_ms)
        for column in columns:
            column.grow(count)
            keep |= column.generations[:count] > 0  # else a producer's predecessor would be believed
        if keep.all():
            return False
        at = np.flatnonzero(keep)
        for column in columns:
            column.keep(at)
        self._name(self._known.take(pa.array(at)).to_pylist())
        log.info("%d names of hosts that were silent for long are forgotten", count - at.size)
        return True

    def _name(self, names: list[str]) -> None:
        self._names = names
        self._known = pa.array(names, pa.string())

    def _places(self, hosts: pa.Array) -> Int64s:
        return np.asarray(pc.index_in(hosts, self._known).fill_null(-1).to_numpy(), np.int64)

    def _warn(self) -> None:
        if not self._warned:
            log.warning(
                "events without a usable host move no progress: expected 1 to %d printable characters "
                "without spaces, and at most %d hosts",
                HOST_NAME_MAX,
                HOSTS_MAX,
            )
        self._warned = True


def _sums(partitions: Int64s, events: Int64s) -> dict[int, int]:
    """Return the number of events by partition, where there are any."""
    sums = {part: int(events[partitions == part].sum()) for part in np.unique(partitions).tolist()}
    return {part: number for part, number in sums.items() if number}


def _fresh(hosts: pa.Array, places: Int64s) -> list[str]:
    """Return names that have no place yet and may have one."""
    absent = places < 0
    return _usable(pc.unique(hosts.filter(pa.array(absent))).to_pylist()) if absent.any() else []


def _usable(names: Sequence[str | None]) -> list[str]:
    """Look up each name once, when it is new."""
    return [
        name
        for name in names
        if name and len(name) <= HOST_NAME_MAX and name.isprintable() and " " not in name
    ]


@dataclass(slots=True)
class HostColumns:
    """Progress of the hosts of one partition, a row per host.

    Attributes:
        latest_ms: The latest event time; `NEVER` for a host that has not been read.
        events: The events since the last report.
        changed: True where the host's row has changed since the last report.
        generations: The generation of a producer that states its own progress; 0 for other hosts.
    """

    latest_ms: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    events: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    changed: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    generations: Int64s = field(default_factory=lambda: np.empty(0, np.int64))

    def grow(self, hosts: int) -> None:
        if hosts > self.latest_ms.size:
            more = max(hosts, 2 * self.latest_ms.size) - self.latest_ms.size
            self.latest_ms = np.pad(self.latest_ms, (0, more), constant_values=NEVER)
            self.events = np.pad(self.events, (0, more))
            self.changed = np.pad(self.changed, (0, more))
            self.generations = np.pad(self.generations, (0, more))

    def keep(self, at: Int64s) -> None:
        """Keep only these hosts, which get new indices. `grow` first."""
        self.latest_ms, self.events = self.latest_ms[at], self.events[at]
        self.changed, self.generations = self.changed[at], self.generations[at]

    def merge(self, at: Int64s, latest_ms: Int64s, events: Int64s, generations: Int64s) -> None:
        """Merge rows: within a generation the largest counts, and a later generation replaces the one
        before."""
        stands = self.generations[at]
        accepted = generations >= stands
        at, latest_ms, later = at[accepted], latest_ms[accepted], (generations > stands)[accepted]
        self.latest_ms[at] = np.where(later, latest_ms, np.maximum(self.latest_ms[at], latest_ms))
        self.generations[at] = generations[accepted]
        self.events[at] += events[accepted]
        self.changed[at] = True

    def seen(self) -> Int64s:
        return np.flatnonzero(self.latest_ms != NEVER)

    def known(self) -> Int64s:
        """Return the hosts that have been read, or have a generation without any progress yet."""
        return np.flatnonzero((self.latest_ms != NEVER) | (self.generations > 0))
