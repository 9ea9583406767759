"""The progress of each host as read: a columnar table (partition, host) → latest event time.

A partition is read by one consumer at a time; its `generation` says which. A host counts with the smallest
progress over the partitions it is active on, that is, on which it has been seen.

    report of the generation we know    larger values count, smaller ones are regressions: counted, no effect
    report of an earlier generation     refused whole, counted
    report of a later generation        replaces the partition: its hosts are awaited (NEVER) until named

So the table is the same whatever order or however often the reports of one generation come in. Its values
may fall with a generation; what is published is clamped by who publishes it.

A report says how many events were read of a host since the report before. A consumer that begins behind its
predecessor counts some of them a second time, and what its first report counts has no known beginning: they
are not new until the partition is read again up to where the former consumer was.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rtolap.watermark.snapshot import NEVER, Indices, Instants, Mask
from rtolap.watermark.zones import whole_hours_off

_ABSENT = 2**63 - 1  # not active there: never the smallest
_ROWS_FIRST = 64
_FEW = 8  # so many times fewer than all hosts


@dataclass(slots=True)
class _Rereading:
    """Readers that go over a log again: by partition, how far each host had been read by former consumers;
    NEVER once that is reached again. Memory: 8 bytes per host, only for partitions that are being read
    again."""

    _former_ms: dict[int, Instants] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._former_ms.values())

    def replaced(self, partition: int, read_ms: Instants) -> None:
        """Note that a consumer takes over. Its predecessor had read up to `read_ms`, which is NEVER for hosts
        that it had not read."""
        before_ms = self._former_ms.get(partition, read_ms)
        self._former_ms[partition] = np.maximum(before_ms, read_ms)

    def former_ms(self, partition: int, hosts: Indices) -> Instants:
        """Return how far former consumers had read them; NEVER of those where that is reached again."""
        column = self._former_ms.get(partition)
        return np.full(hosts.size, NEVER) if column is None else column[hosts]

    def goes_on(self, partition: int, hosts: NDArray[np.integer], latest_ms: Instants) -> Mask:
        """Mark the hosts whose reports are of new events only: `latest_ms` is what this consumer reported of
        them before, NEVER if it has not."""
        spoken: Mask = latest_ms != NEVER
        column = self._former_ms.get(partition)
        if column is None:
            return spoken
        caught_up: Mask = spoken & (latest_ms >= column[hosts])
        column[hosts[caught_up]] = NEVER
        if not (column != NEVER).any():
            del self._former_ms[partition]
        return caught_up

    def grow(self, more: int) -> None:
        new = np.full(more, NEVER)
        self._former_ms = {p: np.concatenate((column, new)) for p, column in self._former_ms.items()}

    def keep(self, hosts: Indices) -> None:
        self._former_ms = {partition: column[hosts] for partition, column in self._former_ms.items()}

    def forget(self, hosts: Indices) -> None:
        for column in self._former_ms.values():
            column[hosts] = NEVER


@dataclass(slots=True)
class ProgressCounters:
    """Counters since the start. The counted reports have changed nothing, except for replaced generations.

    Attributes:
        wrong_zone: of those `in_future`, whole hours ahead.
    """

    regressions: int = 0
    stale_reports: int = 0
    replaced_generations: int = 0
    in_future: int = 0
    wrong_zone: int = 0
    negative: int = 0
    unknown_hosts: int = 0
    released: int = 0


@dataclass(frozen=True, slots=True)
class Applied:
    """The changes that a report has made.

    Attributes:
        accepted: entries of the report that were taken, those without news included.
        goes_on: accepted entries whose log was read from where the report before ended, so that all of it is
            new. Not where a reader reports a host for the first time, nor while it reads a range again.
        stale: another consumer has the partition by now, and nothing was taken.
    """

    accepted: Mask
    goes_on: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    stale: bool = False


@dataclass(slots=True)
class SourceProgress:
    """The progress of hosts 0 … N−1 (`grow` adds more). Memory: 8 bytes per host and partition that was ever
    reported, twice as much for partitions that another consumer reads again, until it has caught up."""

    hosts: int
    future_max_ms: int = 60_000
    counters: ProgressCounters = field(default_factory=ProgressCounters)
    _rows: dict[int, int] = field(default_factory=dict)
    _generations: dict[int, int] = field(default_factory=dict)
    _rereading: _Rereading = field(default_factory=_Rereading)
    _latest_ms: Instants = field(init=False)
    _active_on: NDArray[np.int32] = field(init=False)
    _combined_ms: Instants = field(init=False)

    def __post_init__(self) -> None:
        self._latest_ms = np.full((0, self.hosts), _ABSENT, np.int64)
        self._active_on = np.zeros(self.hosts, np.int32)
        self._combined_ms = np.full(self.hosts, NEVER, np.int64)

    def grow(self, hosts: int) -> None:
        """Make room for so many hosts; the new ones have never been seen."""
        more = hosts - self.hosts
        if more <= 0:
            return
        absent = np.full((len(self._latest_ms), more), _ABSENT)
        self._latest_ms = np.concatenate((self._latest_ms, absent), axis=1)
        self._active_on = np.concatenate((self._active_on, np.zeros(more, np.int32)))
        self._combined_ms = np.concatenate((self._combined_ms, np.full(more, NEVER)))
        self._rereading.grow(more)
        self.hosts = hosts

    def keep(self, hosts: Indices) -> None:
        """Keep only these hosts, in this order: their indices change."""
        self._latest_ms = self._latest_ms[:, hosts]
        self._active_on = self._active_on[hosts]
        self._combined_ms = self._combined_ms[hosts]
        self._rereading.keep(hosts)
        self.hosts = int(hosts.size)

    def apply(
        self, partition: int, generation: int, hosts: NDArray[np.integer], latest_ms: Instants, now_ms: int
    ) -> Applied:
        """Apply one report: hosts by index, each with its latest event time.

        Entries for hosts that do not exist, that lie before 1970 or further ahead of `now_ms` than
        `future_max_ms` are left out and counted. Raises ValueError if the arrays differ in length.
        """
        if hosts.shape != latest_ms.shape or hosts.ndim != 1:
            raise ValueError(f"one instant per host is expected, found {hosts.shape} and {latest_ms.shape}")
        if generation < self._generations.get(partition, generation):
            self.counters.stale_reports += 1
            return Applied(np.zeros(hosts.size, np.bool_), stale=True)
        row = self._row(partition, generation)
        accepted = self._sound(hosts, latest_ms, now_ms)
        if not accepted.all():
            hosts, latest_ms = hosts[accepted], latest_ms[accepted]
        before = row[hosts]
        goes_on = self._rereading.goes_on(partition, hosts, _read(before))
        self.counters.regressions += int(np.count_nonzero((latest_ms < before) & (before != _ABSENT)))
        fresh = before == _ABSENT
        after = np.where(fresh, latest_ms, np.maximum(before, latest_ms))
        row[hosts] = after
        if (row[hosts] != after).any():  # a host twice in one report
            np.maximum.at(row, hosts, after)
            after = row[hosts]
        if fresh.any():
            self._active_on[hosts[fresh]] += 1
        self._recombine(hosts, after)
        return Applied(accepted, goes_on)

    def latest_ms(self) -> Instants:
        """Return each host's progress; NEVER for one that is awaited or was not seen. A copy."""
        return self._combined_ms.copy()

    def latest_of(self, hosts: NDArray[np.integer]) -> Instants:
        """Return the progress of these hosts only, for HostRates.observe."""
        latest_ms: Instants = self._combined_ms[hosts]
        return latest_ms

    def latest_in(self, partition: int, hosts: NDArray[np.integer]) -> Instants:
        """Return how far its reader has read these hosts there; NEVER where it has not. The result of an
        unknown host has no meaning."""
        row = self._rows.get(partition)
        if row is None or not self.hosts:
            return np.full(hosts.size, NEVER)
        return _read(self._latest_ms[row, hosts])

    def unseen(self, hosts: NDArray[np.integer]) -> Mask:
        """Mark the hosts that no reader of any partition has named yet."""
        if not self.hosts:
            return np.ones(hosts.size, np.bool_)
        unseen: Mask = self._active_on[hosts] == 0
        return unseen

    @property
    def nbytes(self) -> int:
        columns = self._latest_ms, self._active_on, self._combined_ms, self._rereading
        return sum(column.nbytes for column in columns)

    def generation(self, partition: int) -> int | None:
        return self._generations.get(partition)

    def partition_latest_ms(self) -> dict[int, int]:
        """Return the largest event time per partition that has one."""
        latest_by_partition = {}
        for partition, row in self._rows.items():
            seen = self._latest_ms[row][self._latest_ms[row] != _ABSENT]
            if seen.size and (largest := int(seen.max())) != NEVER:
                latest_by_partition[partition] = largest
        return latest_by_partition

    def release_abandoned(self, lease_ms: int) -> int:
        """Release hosts from partitions that they have left for others.

        Return the number of pairs of partition and host that are released.

        A host has left a partition if others there, and the host itself elsewhere, are further by more than
        the lease than whichever reader has read it there: of a host that is awaited, or read again, nobody
        knows that it left before the former reader saw it. Decided by event times that came the ordered way,
        not by silence: a partition that stands still, and a host that stands still everywhere, release
        nobody.
        """
        released = 0
        several = np.flatnonzero(self._active_on > 1)
        if not several.size:
            return 0
        block = self._latest_ms[:, several]
        furthest = np.where(block == _ABSENT, NEVER, block).max(axis=0)
        for partition, row in self._rows.items():
            others = self._latest_ms[row][self._latest_ms[row] != _ABSENT]
            if not others.size or (reached := int(others.max())) < NEVER + lease_ms:
                continue
            former_ms = self._rereading.former_ms(partition, several)
            here = np.maximum(self._latest_ms[row, several], former_ms)
            left = (here < reached - lease_ms) & (here < furthest - lease_ms) & (furthest != NEVER)
            gone = several[left]
            self._latest_ms[row, gone] = _ABSENT
            self._active_on[gone] -= 1
            released += int(gone.size)
        self._recombine(several, None)
        self.counters.released += released
        return released

    def forget(self, hosts: Indices) -> None:
        """Forget these hosts, as if they had never been seen."""
        self._latest_ms[:, hosts] = _ABSENT
        self._active_on[hosts] = 0
        self._combined_ms[hosts] = NEVER
        self._rereading.forget(hosts)

    def _row(self, partition: int, generation: int) -> Instants:
        row = self._rows.get(partition)
        if row is None:
            row = self._rows[partition] = len(self._rows)
            if row >= len(self._latest_ms):
                rows = max(len(self._latest_ms), _ROWS_FIRST if row else 1)
                more = np.full((rows, self.hosts), _ABSENT)
                self._latest_ms = np.concatenate((self._latest_ms, more))
            self._generations[partition] = generation
        values: Instants = self._latest_ms[row]
        if generation > self._generations[partition]:
            self._generations[partition] = generation
            self.counters.replaced_generations += 1
            awaited = np.flatnonzero(values != _ABSENT)
            self._rereading.replaced(partition, _read(values))
            values[awaited] = NEVER
            self._combined_ms[awaited] = NEVER
        return values

    def _sound(self, hosts: NDArray[np.integer], latest_ms: Instants, now_ms: int) -> Mask:
        unknown = (hosts < 0) | (hosts >= self.hosts)
        negative = latest_ms < 0
        future = latest_ms > now_ms + self.future_max_ms
        self.counters.unknown_hosts += int(np.count_nonzero(unknown))
        self.counters.negative += int(np.count_nonzero(negative & ~unknown))
        self.counters.in_future += int(np.count_nonzero(future & ~unknown))
        if future.any():
            ahead_ms = latest_ms[future & ~unknown] - now_ms
            self.counters.wrong_zone += int(np.count_nonzero(whole_hours_off(ahead_ms)))
        return ~(unknown | negative | future)

    def _recombine(self, hosts: NDArray[np.integer], latest_ms: Instants | None) -> None:
        """Combine the progress of hosts. The usual host logs to one partition, and the report of it is its
        progress."""
        if latest_ms is not None:
            single = self._active_on[hosts] == 1
            if single.all():
                self._combined_ms[hosts] = latest_ms
                return
            self._combined_ms[hosts[single]] = latest_ms[single]
            hosts = hosts[~single]
        least = self._least_of(hosts)
        self._combined_ms[hosts] = np.where(least == _ABSENT, NEVER, least)

    def _least_of(self, hosts: NDArray[np.integer]) -> Instants:
        """Return the least over all partitions; of many hosts in whole rows, which is quicker than column by
        column."""
        if hosts.size * _FEW > self.hosts:
            least_ms: Instants = self._latest_ms.min(axis=0)[hosts]
        else:
            least_ms = self._latest_ms[:, hosts].min(axis=0)
        return least_ms


def _read(values: Instants) -> Instants:
    return np.where(values == _ABSENT, NEVER, values)
