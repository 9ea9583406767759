"""How far the hosts are that log to each partition, as far as this receiver has read. Columns throughout.

A host's progress in a partition is the largest event time that was read of it there, an event counting no
further than its own record's timestamp. Whatever a state holds, this says; nothing that it does not hold.
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

from rtolap.receiver.heard import NEVER, Heard, Int64s
from rtolap.wire.watermark import HOST_NAME_MAX

log = logging.getLogger(__name__)

HOSTS_MAX = 200_000  # as many as the watermark server takes of a source; more is a column that names no host


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """What there is to say of one partition. `events`: read since it was said last."""

    hosts: tuple[str, ...]
    latest_ms: Int64s
    events: Int64s


class SavedHosts(msgspec.Struct, frozen=True):
    """As a checkpoint keeps it: names once; per partition their indices, int32, instants, int64, and, where
    they have any, generations, int64, all little-endian."""

    names: tuple[str, ...] = ()
    index: dict[int, bytes] = {}
    latest_ms: dict[int, bytes] = {}
    generations: dict[int, bytes] = {}


@dataclass(slots=True)
class _Columns:
    """Of one partition, by index of the host."""

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

    def take(self, at: Int64s, latest_ms: Int64s, events: Int64s, generations: Int64s) -> None:
        """Of a generation the largest counts, and a later generation replaces the one before."""
        stands = self.generations[at]
        heard = generations >= stands
        at, latest_ms, later = at[heard], latest_ms[heard], (generations > stands)[heard]
        self.latest_ms[at] = np.where(later, latest_ms, np.maximum(self.latest_ms[at], latest_ms))
        self.generations[at] = generations[heard]
        self.events[at] += events[heard]
        self.changed[at] = True


class HostProgress:
    """Owned by the core thread. Memory: 25 bytes per host and partition, and the names once."""

    def __init__(self) -> None:
        self._warned = False
        self._names: list[str] = []
        self._known = pa.array([], pa.string())
        self._partitions: dict[int, _Columns] = {}

    def took(self, batch: Heard) -> dict[int, int]:
        """What was read of a batch, once its state is the one that a closing would use.

        Returns partition → events that move nobody: their host is null, has no usable name, or is one too
        many.
        """
        at = self._indices(batch.hosts)
        lost = at < 0
        hostless = _sums(batch.partitions[lost], batch.events[lost])
        if hostless:
            self._warn()
        for partition in np.unique(batch.partitions[~lost]).tolist():
            rows = (batch.partitions == partition) & ~lost
            columns = self._partitions.setdefault(partition, _Columns())
            columns.grow(len(self._names))
            columns.take(at[rows], batch.latest_ms[rows], batch.events[rows], batch.generations[rows])
        return hostless

    def take(self, partitions: Collection[int], *, whole: bool) -> dict[int, PartitionProgress]:
        """What has changed since the last time, or with `whole` all that is known. Of each of `partitions`,
        also where there is nothing to say."""
        return {partition: self._take(partition, whole) for partition in partitions}

    def keep_only(self, partitions: Collection[int]) -> None:
        """Forget the others, as the state does."""
        self._partitions = {p: columns for p, columns in self._partitions.items() if p in partitions}

    def latest_ms(self) -> dict[int, dict[str, int]]:
        """Partition → host → progress: for people and tests."""
        return {
            partition: {self._names[at]: int(columns.latest_ms[at]) for at in _seen(columns).tolist()}
            for partition, columns in self._partitions.items()
        }

    # -- checkpoints ------------------------------------------------------------------------------------

    def saved(self) -> SavedHosts:
        seen = {partition: (_kept(columns), columns) for partition, columns in self._partitions.items()}
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
        self._names = list(saved.names)
        self._known = pa.array(self._names, pa.string())
        self._partitions = dict(self._recovered(saved))

    def _recovered(self, saved: SavedHosts) -> Iterator[tuple[int, _Columns]]:
        for partition, packed in saved.index.items():
            columns = _Columns()
            columns.grow(len(self._names))
            at = np.frombuffer(packed, "<i4")
            columns.latest_ms[at] = np.frombuffer(saved.latest_ms[partition], "<i8")
            if partition in saved.generations:
                columns.generations[at] = np.frombuffer(saved.generations[partition], "<i8")
            yield partition, columns

    # -- inside -----------------------------------------------------------------------------------------

    def _take(self, partition: int, whole: bool) -> PartitionProgress:
        columns = self._partitions.get(partition, _Columns())
        at = _seen(columns) if whole else np.flatnonzero(columns.changed & (columns.latest_ms != NEVER))
        taken = PartitionProgress(
            tuple(self._names[place] for place in at.tolist()), columns.latest_ms[at], columns.events[at]
        )
        columns.changed[:] = False
        columns.events[:] = 0
        return taken

    def _indices(self, hosts: pa.Array) -> Int64s:
        """Places of names, -1 for those that cannot be kept."""
        found = self._places(hosts)
        if (found < 0).any():
            fresh = pc.unique(hosts.filter(pa.array(found < 0)))
            usable = _usable(fresh.to_pylist())[: HOSTS_MAX - len(self._names)]
            if usable:
                self._names += usable
                self._known = pa.array(self._names, pa.string())
                found = self._places(hosts)
        return found

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


def _seen(columns: _Columns) -> Int64s:
    return np.flatnonzero(columns.latest_ms != NEVER)


def _kept(columns: _Columns) -> Int64s:
    return np.flatnonzero((columns.latest_ms != NEVER) | (columns.generations > 0))


def _sums(partitions: Int64s, events: Int64s) -> dict[int, int]:
    """Partition → events, where there are any."""
    found = {part: int(events[partitions == part].sum()) for part in np.unique(partitions).tolist()}
    return {part: number for part, number in found.items() if number}


def _usable(names: Sequence[str | None]) -> list[str]:
    """Each name is asked for once, when it is new."""
    return [
        one for one in names if one and len(one) <= HOST_NAME_MAX and one.isprintable() and " " not in one
    ]
