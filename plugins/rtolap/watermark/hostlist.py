"""The membership of the hosts of one source, in epochs.

    listed  ──drain, or no longer in the list──▶  leaving  ──its end is reached, or its time is over──▶  left
      ▲                                              │                                                     │
      └───────────────── listed again ───────────────┴─────────────────────────────────────────────────────┘

A host that is listed or leaving counts, seen or not; one that has left does not. A registered host that does
not renew its lease leaves when it ends. Every change of who counts makes a new epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from rtolap.base.errors import NotFound
from rtolap.watermark.snapshot import NEVER, Indices, Instants, Mask

NO_LIMIT_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ListChange:
    added: tuple[str, ...]
    leaving: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leaving:
    """A host by index that leaves when it has been read to `end_ms`, at the latest at `until_ms`."""

    host: int
    end_ms: int
    until_ms: int


@dataclass(slots=True)
class Hosts:
    """Columns over an index that stays a host's own until `keep`.

    Attributes:
        joined: the epoch in which each host began to count; what was known of it before that is forgotten.
    """

    epoch: int = 0
    names: list[str] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    joined: Indices = field(default_factory=lambda: np.zeros(0, np.int64))
    _listed: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    _gone: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    _until_ms: Instants = field(default_factory=lambda: np.zeros(0, np.int64))
    _end_ms: Instants = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def listed(self) -> Mask:
        """Listed or leaving: to be counted unless `drained`."""
        return ~self._gone

    @property
    def drained(self) -> Mask:
        return self._gone.copy()

    def replace(self, names: Iterable[str], now_ms: int, grace_ms: int) -> ListChange:
        """Replace the hosts by the list of a file, an address or a node. A host that is no longer in it
        leaves within the grace time."""
        wanted = dict.fromkeys(names)
        known = np.zeros(len(self.names), np.bool_)
        known[[self.index[name] for name in wanted if name in self.index]] = True
        going = np.flatnonzero(self._listed & ~known)
        fresh = [name for name in wanted if name not in self.index or not self._listed[self.index[name]]]
        self._until_ms[going] = now_ms + grace_ms
        self._listed[going] = False
        self._list(fresh, NO_LIMIT_MS)
        if fresh or going.size:
            self.epoch += 1
        return ListChange(tuple(fresh), tuple(self.names[at] for at in going.tolist()))

    def register(self, names: Sequence[str], now_ms: int, lease_ms: int) -> ListChange:
        """Register new hosts, or renew leases. A host that was leaving or had left is back."""
        fresh = [
            name
            for name in dict.fromkeys(names)
            if name not in self.index or not self._listed[self.index[name]]
        ]
        self._list(fresh, now_ms + lease_ms)
        self._until_ms[[self.index[name] for name in names]] = now_ms + lease_ms
        if fresh:
            self.epoch += 1
        return ListChange(tuple(fresh), ())

    def drain(self, name: str, end_ms: int | None, now_ms: int, grace_ms: int) -> None:
        """Drain a host, which logs nothing at or after `end_ms` any more. It leaves when it has been read so
        far, at the latest after the grace time. Raises NotFound."""
        at = self._at(name)
        self._let_go(at, NO_LIMIT_MS if end_ms is None else end_ms, now_ms + grace_ms)
        self.epoch += 1

    def leaving(self) -> tuple[Leaving, ...]:
        places = (~self._listed & ~self._gone).nonzero()[0]
        if not places.size:
            return ()
        ends_ms, until_ms = self._end_ms[places].tolist(), self._until_ms[places].tolist()
        return tuple(map(Leaving, places.tolist(), ends_ms, until_ms))

    def let_go(self, leaving: Iterable[Leaving]) -> None:
        """Return another list of these hosts, with the same indices, given in `leaving`. The epoch stays."""
        for host in leaving:
            self._let_go(host.host, host.end_ms, host.until_ms)

    def _let_go(self, at: int, end_ms: int, until_ms: int) -> None:
        self._listed[at] = False
        self._end_ms[at] = end_ms
        self._until_ms[at] = until_ms

    def remove(self, name: str) -> None:
        """Remove a host at once, when the caller knows that none of its events will be missing. Raises
        NotFound."""
        at = self._at(name)
        self._listed[at] = False
        if not self._gone[at]:
            self._gone[at] = True
            self.epoch += 1

    def shift(self, step_ms: int) -> None:
        """Move leases and grace times, because the clock was set. Those of leaving hosts make a new epoch, so
        that the next owner knows them."""
        limited = self._until_ms < NO_LIMIT_MS // 2
        self._until_ms[limited] += step_ms
        if self.leaving():
            self.epoch += 1

    def leave(self, latest_ms: Instants, now_ms: int) -> tuple[str, ...]:
        """Remove hosts whose lease or grace time is over, or that have been read to their announced end."""
        over = self._until_ms <= now_ms
        ended = ~self._listed & (latest_ms[: len(self.names)] >= self._end_ms)
        leaving = (~self._gone & (over | ended)).nonzero()[0]
        if not leaving.size:
            return ()
        self._gone[leaving] = True
        self._listed[leaving] = False
        self.epoch += 1
        return tuple(self.names[at] for at in leaving.tolist())

    def indices(self, names: Sequence[str]) -> Indices:
        """Return the indices of hosts.

        Hosts that are unknown or have left get −1, and their report is refused.
        """
        indices = np.array([self.index.get(name, -1) for name in names], np.int64)
        known = indices >= 0
        indices[known] = np.where(self._gone[indices[known]], -1, indices[known])
        return indices

    def retained(self) -> Indices:
        """Return the hosts that have not left, for `keep` here, in HostProgress and in HostRates."""
        return (~self._gone).nonzero()[0]

    def keep(self, hosts: Indices) -> None:
        """Keep only these hosts, in this order, with new indices: when many have left, their room is given
        back."""
        self.names = [self.names[at] for at in hosts.tolist()]
        self.index = {name: at for at, name in enumerate(self.names)}
        self._listed, self._gone = self._listed[hosts], self._gone[hosts]
        self._until_ms, self._end_ms = self._until_ms[hosts], self._end_ms[hosts]
        self.joined = self.joined[hosts]

    def _at(self, name: str) -> int:
        at = self.index.get(name)
        if at is None or self._gone[at]:
            raise NotFound(f"no host is named {name!r}", expected="a host of the list", found="none")
        return at

    def _list(self, names: Sequence[str], until_ms: int) -> None:
        """List those that are not listed now; the caller begins an epoch if there are any."""
        new = [name for name in names if name not in self.index]
        for name in new:
            self.index[name] = len(self.names)
            self.names.append(name)
        if new:
            no, nothing = np.zeros(len(new), np.bool_), np.zeros(len(new), np.int64)
            self._listed = np.concatenate((self._listed, no))
            self._gone = np.concatenate((self._gone, ~no))
            self._until_ms = np.concatenate((self._until_ms, nothing))
            self._end_ms = np.concatenate((self._end_ms, np.full(len(new), NEVER)))
            self.joined = np.concatenate((self.joined, nothing))
        at = np.array([self.index[name] for name in names], np.int64)
        self.joined[at[self._gone[at]]] = self.epoch + 1
        self._listed[at] = True
        self._gone[at] = False
        self._until_ms[at] = until_ms
        self._end_ms[at] = NO_LIMIT_MS
