"""A Kafka fleet at one moment, in columns.

A fleet has millions of replicas: a table is a set of arrays of one length, its rows are numbered from 0, and
tables refer to each other by row. The order of rows is part of the value, so that the same fleet gives the
same snapshot, and the same snapshot the same plan: brokers by id, log directories by broker and path, topics
by name, partitions by topic and number, replicas by partition and, within one, by preference, as Kafka lists
them: the first is the preferred leader.

`UNKNOWN` (-1) stands in integer columns for what could not be read, NaN in rates; `missing` says of what, and
which decisions that forbids.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rtolap.base.errors import Corrupted

Int8s = NDArray[np.int8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

UNKNOWN = -1
_PORT_MAX = 65_535
_NAMED_MAX = 3


class BrokerState(IntEnum):
    """The state of a broker.

    Attributes:
        ABSENT: Replicas name the broker, but the cluster does not know it.
        FENCED: The broker is registered, but serves no clients.
    """

    ALIVE = 0
    FENCED = 1
    ABSENT = 2


class ReplicaState(IntEnum):
    """The part of a replica in a running reassignment, in the words of ListPartitionReassignments."""

    STAYING = 0
    ADDING = 1
    REMOVING = 2


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of one length: it is that of the first."""

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))


@dataclass(frozen=True, eq=False)
class Brokers(Table):
    """Brokers by id.

    Attributes:
        racks: None for a broker without a rack.
        states: Values of `BrokerState`.
    """

    ids: Int32s
    hosts: tuple[str, ...]
    ports: Int32s
    racks: tuple[str | None, ...]
    states: Int8s


@dataclass(frozen=True, eq=False)
class LogDirs(Table):
    """Log directories by broker and path.

    Attributes:
        brokers: Rows of brokers.
        total_bytes: Size of the disk. `UNKNOWN` where the broker does not report it.
        usable_bytes: Free bytes of the disk. `UNKNOWN` where the broker does not report them.
        offline: The broker has given the directory up.
        cordoned: The directory takes no new replicas.
    """

    brokers: Int32s
    paths: tuple[str, ...]
    total_bytes: Int64s
    usable_bytes: Int64s
    offline: Flags
    cordoned: Flags


@dataclass(frozen=True, eq=False)
class Topics(Table):
    """Topics by name.

    Attributes:
        min_in_sync: `min.insync.replicas`, or `UNKNOWN`.
        internal: The topic is Kafka's own.
    """

    names: tuple[str, ...]
    min_in_sync: Int32s
    internal: Flags


@dataclass(frozen=True, eq=False)
class Partitions(Table):
    """Partitions by topic and number.

    Attributes:
        topics: Rows of topics.
        leaders: Rows of brokers. `UNKNOWN` for a partition without a leader.
        first_replicas: Has one entry more than there are partitions. The replicas of partition p are the rows
            first_replicas[p] up to first_replicas[p + 1].
        bytes_in_per_s: Bytes that producers send. NaN where not known.
        bytes_out_per_s: Bytes that consumers read. NaN where not known.
    """

    topics: Int32s
    numbers: Int32s
    leaders: Int32s
    first_replicas: Int64s
    bytes_in_per_s: Floats
    bytes_out_per_s: Floats


@dataclass(frozen=True, eq=False)
class Replicas(Table):
    """Replicas by partition and preference.

    Attributes:
        partitions: Rows of partitions.
        brokers: Rows of brokers.
        log_dirs: Rows of log directories. `UNKNOWN` where no broker reported them.
        size_bytes: `UNKNOWN` where no broker reported it.
        lag: Records behind the leader, by DescribeLogDirs.
        states: Values of `ReplicaState`.
        future_log_dirs: Directory to which the broker moves the replica. `UNKNOWN` for no such move.
        future_bytes: Bytes that are there already.
    """

    partitions: Int32s
    brokers: Int32s
    log_dirs: Int32s
    size_bytes: Int64s
    lag: Int64s
    in_sync: Flags
    states: Int8s
    future_log_dirs: Int32s
    future_bytes: Int64s


@dataclass(frozen=True)
class Quota:
    """A quota that a client has.

    Attributes:
        entity: Types and names, sorted by type. The name None is the default of its type.
    """

    entity: tuple[tuple[str, str | None], ...]
    key: str
    value: float


@dataclass(frozen=True)
class MissingFact:
    """A fact that was not read, why, and the decisions that cannot be made without it, in plain words."""

    fact: str
    reason: str
    forbids: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class FleetSnapshot:
    """A fleet at one moment.

    Attributes:
        cluster_id: Kafka's id of the cluster.
        controller: Id of the controlling broker, or `UNKNOWN`.
    """

    cluster_id: str
    taken_at_ms: int
    controller: int
    brokers: Brokers
    log_dirs: LogDirs
    topics: Topics
    partitions: Partitions
    replicas: Replicas
    quotas: tuple[Quota, ...] = ()
    missing: tuple[MissingFact, ...] = ()

    def check(self) -> None:
        """Raise Corrupted, naming what is wrong, where tables contradict each other (lengths, order, missing
        rows) or show an impossible fleet (negative sizes, more usable than there is)."""
        brokers, dirs, topics = self.brokers, self.log_dirs, self.topics
        partitions, replicas = self.partitions, self.replicas
        for name, table in (
            ("brokers", brokers),
            ("log_dirs", dirs),
            ("topics", topics),
            ("partitions", partitions),
            ("replicas", replicas),
        ):
            _check_lengths(name, len(table), vars(table))
        _check(bool((np.diff(brokers.ids) > 0).all()), "brokers are not in the order of their ids")
        _check(
            all(a < b for a, b in zip(topics.names, topics.names[1:], strict=False)), "topics are not sorted"
        )
        _check_rows("log_dirs.brokers", dirs.brokers, len(brokers))
        _check_rows("partitions.topics", partitions.topics, len(topics))
        _check_rows("partitions.leaders", partitions.leaders, len(brokers), unknown=True)
        keys = partitions.topics.astype(np.int64) << 32 | partitions.numbers
        _check(bool((np.diff(keys) > 0).all()), "partitions are not in the order of topic and number")
        for name in ("bytes_in_per_s", "bytes_out_per_s"):
            rates = getattr(partitions, name)
            known = np.isnan(rates) | (np.isfinite(rates) & (rates >= 0))
            _check(bool(known.all()), f"partitions.{name} has rates below nothing, or without end")
        _check_rows("replicas.brokers", replicas.brokers, len(brokers))
        _check_rows("replicas.log_dirs", replicas.log_dirs, len(dirs), unknown=True)
        _check_rows("replicas.future_log_dirs", replicas.future_log_dirs, len(dirs), unknown=True)
        first = partitions.first_replicas
        bounds = len(first) == len(partitions) + 1 and first[0] == 0 and first[-1] == len(replicas)
        _check(bool(bounds), "first_replicas does not span the replicas")
        owners = np.repeat(np.arange(len(partitions), dtype=np.int32), np.diff(first))
        _check(np.array_equal(owners, replicas.partitions), "replicas are not in the order of partitions")
        self._check_values()
        self._check_disks()
        for column in (replicas.log_dirs, replicas.future_log_dirs):
            known = column != UNKNOWN
            same = dirs.brokers[column[known]] == replicas.brokers[known]
            _check(bool(same.all()), "a replica's log directory is another broker's")
        self._check_placement()

    def _check_values(self) -> None:
        """Check the columns by themselves."""
        brokers, topics, partitions, replicas = self.brokers, self.topics, self.partitions, self.replicas
        _check(self.taken_at_ms >= 0, f"it was taken at {self.taken_at_ms} ms, before there were clocks")
        _check_least("brokers.ids", brokers.ids, 0)
        _check_least("brokers.ports", brokers.ports, UNKNOWN)
        _check(bool((brokers.ports <= _PORT_MAX).all()), f"brokers.ports has a port above {_PORT_MAX}")
        _check_known("brokers.states", brokers.states, BrokerState)
        _check(all(topics.names), "a topic has no name")
        _check_least("topics.min_in_sync", topics.min_in_sync, UNKNOWN)
        _check_least("partitions.numbers", partitions.numbers, 0)
        for name in ("size_bytes", "future_bytes", "lag"):
            _check_least(f"replicas.{name}", getattr(replicas, name), UNKNOWN)
        _check_known("replicas.states", replicas.states, ReplicaState)
        for quota in self.quotas:
            valid = math.isfinite(quota.value) and quota.value >= 0
            _check(valid, f"quota {quota.key} of {quota.entity} is {quota.value}")

    def _check_disks(self) -> None:
        dirs, replicas = self.log_dirs, self.replicas
        _check_least("log_dirs.total_bytes", dirs.total_bytes, UNKNOWN)
        _check_least("log_dirs.usable_bytes", dirs.usable_bytes, UNKNOWN)
        names = [(int(broker), path) for broker, path in zip(dirs.brokers.tolist(), dirs.paths, strict=True)]
        ordered = all(a < b for a, b in pairwise(names))
        _check(ordered, "log directories are not in the order of broker and path, or one stands twice")
        _check(all(dirs.paths), "a log directory has no path")
        above = np.flatnonzero(
            (dirs.total_bytes != UNKNOWN)
            & (dirs.usable_bytes != UNKNOWN)
            & (dirs.usable_bytes > dirs.total_bytes)
        )
        _check(not above.size, f"{self._dir_names(above)}: more bytes are usable than the disk has")
        there = (replicas.future_log_dirs != UNKNOWN) & (replicas.future_log_dirs == replicas.log_dirs)
        _check(not there.any(), "a replica moves to the log directory where it is")

    def _dir_names(self, rows: Int64s) -> str:
        dirs = self.log_dirs
        named = [f"{self.brokers.ids[dirs.brokers[row]]}:{dirs.paths[row]}" for row in rows[:_NAMED_MAX]]
        return ", ".join(named) + (", …" if rows.size > _NAMED_MAX else "")

    def _check_placement(self) -> None:
        """Check the replicas of each partition."""
        partitions, replicas, count = self.partitions, self.replicas, len(self.brokers)
        keys = np.sort(replicas.partitions.astype(np.int64) * count + replicas.brokers)
        twice = np.flatnonzero(keys[1:] == keys[:-1])
        _check(not twice.size, f"{self._partition_names(keys[twice] // max(count, 1))} is twice on a broker")
        led = np.flatnonzero(partitions.leaders != UNKNOWN)
        wanted = led * count + partitions.leaders[led]
        places = np.minimum(np.searchsorted(keys, wanted), max(keys.size - 1, 0))
        wrong = led[keys[places] != wanted] if keys.size else led
        _check(not wrong.size, f"{self._partition_names(wrong)} is led by a broker that has no replica of it")

    def _partition_names(self, rows: Int64s) -> str:
        named = [
            f"{self.topics.names[self.partitions.topics[row]]}-{self.partitions.numbers[row]}"
            for row in rows[:_NAMED_MAX]
        ]
        return ", ".join(named) + (", …" if rows.size > _NAMED_MAX else "")


def _check_lengths(table: str, rows: int, columns: dict[str, Sequence[object]]) -> None:
    for name, column in columns.items():
        if name != "first_replicas":
            _check(len(column) == rows, f"{table}.{name} has {len(column)} rows instead of {rows}")


def _check_rows(name: str, column: Int32s, rows: int, *, unknown: bool = False) -> None:
    least = UNKNOWN if unknown else 0
    _check(bool(((column >= least) & (column < rows)).all()), f"{name} names rows that are not there")


def _check_least(name: str, column: Int32s | Int64s, least: int) -> None:
    found = int(column.min(initial=least))
    _check(found >= least, f"{name} has {found}, below {least}")


def _check_known(name: str, column: Int8s, kind: type[IntEnum]) -> None:
    unknown = set(np.unique(column).tolist()) - {int(member) for member in kind}
    _check(not unknown, f"{name} has {sorted(unknown)}, which stand for nothing")


def _check(holds: bool, problem: str) -> None:
    if not holds:
        raise Corrupted("a snapshot contradicts itself", found=problem)
