"""How far the hosts are that log to each partition, as far as this receiver has read. Columns throughout.

A host's progress in a partition is the largest event time that was read of it there, an event counting no
further than its own record's timestamp. Whatever a state holds, this says; nothing that it does not hold.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.format.schema import EVENT_MS, PARTITION
from rtolap.stream.watermark_columns import UNKNOWN_MS, Statements
from rtolap.wire.watermark import HOST_NAME_MAX, NAMELESS

log = logging.getLogger(__name__)

Int64s = NDArray[np.int64]

NEVER = -(2**63)
HOSTS_MAX = 200_000  # as many as the watermark server takes of a source; more is a column that names no host


@dataclass(frozen=True, slots=True)
class Heard:
    """Of one batch: row i is `hosts[i]` in `partitions[i]`. `events`: how many were read of it."""

    hosts: pa.Array
    partitions: Int64s
    latest_ms: Int64s
    events: Int64s

    def without_events(self) -> Heard:
        """Of heartbeats: they move progress, and are nothing to be counted."""
        return replace(self, events=np.zeros_like(self.events))


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """What there is to say of one partition. `events`: read since it was said last."""

    hosts: tuple[str, ...]
    latest_ms: Int64s
    events: Int64s


class SavedHosts(msgspec.Struct, frozen=True):
    """As a checkpoint keeps it: names once; per partition their indices, int32, and instants, int64, both
    little-endian."""

    names: tuple[str, ...] = ()
    index: dict[int, bytes] = {}
    latest_ms: dict[int, bytes] = {}


def heard(events: pa.Table, created_ms: Int64s | None, host_column: str | None) -> Heard:
    """`events` as `stream.decode` gives them, `created_ms` the timestamp of each one's record, -1 for none.

    Without a host column all events are of one nameless host. A host that is null stands as one row, too.
    """
    event_ms = np.asarray(events.column(EVENT_MS).to_numpy(), np.int64)
    if created_ms is not None:
        event_ms = np.where(created_ms < 0, event_ms, np.minimum(event_ms, created_ms))
    table = pa.table({"partition": events.column(PARTITION), "at": event_ms})
    if host_column is None:
        hosts: pa.Array | pa.ChunkedArray = pa.repeat(pa.scalar(NAMELESS), len(table))
    else:
        hosts = events.column(host_column)
    grouped = (
        table.append_column("host", hosts)
        .group_by(["partition", "host"], use_threads=False)
        .aggregate([("at", "max"), ("at", "count")])
    )
    return Heard(
        grouped.column("host").combine_chunks(),
        np.asarray(grouped.column("partition").to_numpy(), np.int64),
        np.asarray(grouped.column("at_max").to_numpy(), np.int64),
        np.asarray(grouped.column("at_count").to_numpy(), np.int64),
    )


def stated(statements: Statements) -> Heard:
    """Producers stand for hosts: each says itself how far it is in a partition."""
    known = statements.watermarks_ms != UNKNOWN_MS
    return Heard(
        pa.array(statements.producers, pa.string()).filter(pa.array(known)),
        statements.partitions[known],
        statements.watermarks_ms[known],
        np.zeros(int(known.sum()), np.int64),
    )


@dataclass(slots=True)
class _Columns:
    """Of one partition, by index of the host."""

    latest_ms: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    events: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    changed: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))

    def grow(self, hosts: int) -> None:
        if hosts > self.latest_ms.size:
            more = max(hosts, 2 * self.latest_ms.size) - self.latest_ms.size
            self.latest_ms = np.pad(self.latest_ms, (0, more), constant_values=NEVER)
            self.events = np.pad(self.events, (0, more))
            self.changed = np.pad(self.changed, (0, more))


class HostProgress:
    """Owned by the core thread. Memory: 17 bytes per host and partition, and the names once."""

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
            where = at[rows]
            columns.latest_ms[where] = np.maximum(columns.latest_ms[where], batch.latest_ms[rows])
            columns.events[where] += batch.events[rows]
            columns.changed[where] = True
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
        seen = {partition: (_seen(columns), columns) for partition, columns in self._partitions.items()}
        return SavedHosts(
            names=tuple(self._names),
            index={partition: at.astype("<i4").tobytes() for partition, (at, _) in seen.items()},
            latest_ms={p: columns.latest_ms[at].astype("<i8").tobytes() for p, (at, columns) in seen.items()},
        )

    def recover(self, saved: SavedHosts) -> None:
        self._names = list(saved.names)
        self._known = pa.array(self._names, pa.string())
        self._partitions = dict(self._recovered(saved.index, saved.latest_ms))

    def _recovered(
        self, index: Mapping[int, bytes], latest_ms: Mapping[int, bytes]
    ) -> Iterator[tuple[int, _Columns]]:
        for partition, packed in index.items():
            columns = _Columns()
            columns.grow(len(self._names))
            columns.latest_ms[np.frombuffer(packed, "<i4")] = np.frombuffer(latest_ms[partition], "<i8")
            yield partition, columns

    # -- inside -----------------------------------------------------------------------------------------

    def _take(self, partition: int, whole: bool) -> PartitionProgress:
        columns = self._partitions.get(partition, _Columns())
        at = _seen(columns) if whole else np.flatnonzero(columns.changed)
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


def _sums(partitions: Int64s, events: Int64s) -> dict[int, int]:
    """Partition → events, where there are any."""
    found = {part: int(events[partitions == part].sum()) for part in np.unique(partitions).tolist()}
    return {part: number for part, number in found.items() if number}


def _usable(names: Sequence[str | None]) -> list[str]:
    """Each name is asked for once, when it is new."""
    return [
        one for one in names if one and len(one) <= HOST_NAME_MAX and one.isprintable() and " " not in one
    ]
