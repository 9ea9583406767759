"""The reports that a watermark client still has to send: the newest state per key, so that it is bounded by
their number.

Everything that was reported is kept (8 bytes per host and partition, and the names once per level), because a
new owner requests it again. A session names only so many hosts: where there were more, those that have been
silent for long are forgotten as it begins (`forgetting`), and named again when they report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rtolap.protocols.watermark.messages import (
    HOSTS_MAX,
    ReportBatch,
    SourceReport,
    UnitReport,
    check_host_names,
)
from rtolap.watermark.forgetting import NEVER, worth_keeping

ROWS_MAX = 500_000  # in one batch: 10 MB of columns, far below `REPORT_BYTES_MAX`


@dataclass(slots=True)
class _Partition:
    generation: int
    latest_ms: NDArray[np.int64]
    events: NDArray[np.int64]
    changed: NDArray[np.bool_]
    said: bool = False  # in this session
    said_in: int | None = None  # the batch that sent it first of this generation, in this session
    partitions: int = 0

    def grow(self, hosts: int) -> None:
        more = max(hosts, self.latest_ms.size * 2) - self.latest_ms.size
        if hosts > self.latest_ms.size:
            self.latest_ms = np.pad(self.latest_ms, (0, more), constant_values=NEVER)
            self.events = np.pad(self.events, (0, more))
            self.changed = np.pad(self.changed, (0, more))

    def keep(self, at: NDArray[np.int64]) -> None:
        """Keep only these hosts, which get new indices. `grow` first."""
        self.latest_ms, self.events, self.changed = self.latest_ms[at], self.events[at], self.changed[at]


@dataclass(slots=True)
class _Level:
    names: list[str] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    sent_names: int = 0  # names that the server was sent in this session
    partitions: dict[int, _Partition] = field(default_factory=dict)

    def indices(self, hosts: Sequence[str]) -> NDArray[np.int64]:
        """Return the indices of hosts. Raises DefinitionError for a wrong name, with nothing taken."""
        index = self.index
        indices = np.fromiter((index.get(name, -1) for name in hosts), np.int64, len(hosts))
        fresh = np.flatnonzero(indices < 0).tolist()  # each host once per level
        check_host_names([hosts[at] for at in fresh], "hosts")
        for at in fresh:
            name = hosts[at]
            indices[at] = index.setdefault(name, len(self.names))
            if indices[at] == len(self.names):
                self.names.append(name)
        return indices

    def begin(self) -> None:
        """Begin a session in which nothing has been sent yet. Its names get new indices."""
        count, partitions = len(self.names), self.partitions.values()
        at = np.flatnonzero(worth_keeping((state.latest_ms for state in partitions), count, HOSTS_MAX))
        if at.size < count:
            self.names = [self.names[place] for place in at.tolist()]
            self.index = {name: place for place, name in enumerate(self.names)}
            for state in partitions:
                state.grow(count)
                state.keep(at)
        self.sent_names = 0
        for state in partitions:
            state.said, state.said_in = False, None
            state.changed |= state.latest_ms != NEVER


@dataclass(slots=True)
class Pending:
    """The reports that are still to be sent. Not thread-safe: the client locks."""

    more: bool = False
    withheld: bool = False  # are there sources that the last batch left out on purpose?
    _units_alone: bool = False
    _levels: dict[str, _Level] = field(default_factory=dict)
    _units: dict[tuple[str, str, int], UnitReport] = field(default_factory=dict)
    _left: dict[tuple[str, str, int], UnitReport] = field(default_factory=dict)

    def progress(
        self,
        level: str,
        partition: int,
        generation: int,
        hosts: Sequence[str],
        latest_ms: NDArray[np.int64],
        events: NDArray[np.int64] | None,
        partitions: int = 0,
    ) -> None:
        """Take progress, and keep the largest per host. A later generation forgets what the one before has
        read."""
        names = self._levels.setdefault(level, _Level())
        at = names.indices(hosts)
        state = names.partitions.get(partition)
        if state is not None and generation < state.generation:
            return  # of a consumer whose time is over
        if state is None or generation > state.generation:
            nothing = np.empty(0, np.int64)
            state = _Partition(generation, nothing, nothing, np.empty(0, np.bool_))
            names.partitions[partition] = state
        state.partitions = partitions
        state.grow(len(names.names))
        if at.size:
            np.maximum.at(state.latest_ms, at, latest_ms)
            state.changed[at] = True
            if events is not None:
                np.add.at(state.events, at, events)

    def said_in(self, level: str, partition: int, generation: int) -> int | None:
        """Return the sequence of the batch that sent it first in this session, answered or not."""
        known = self._levels.get(level)
        state = None if known is None else known.partitions.get(partition)
        return state.said_in if state is not None and state.generation == generation else None

    def work(self, report: UnitReport) -> None:
        """Return True for a generation before the newest that was reported here: its reports are void."""
        key = (report.level, report.processor, report.key_group)
        known = self._units.get(key) or self._left.get(key)
        if known is not None and report.generation < known.generation:
            return
        if report.left:
            self._units.pop(key, None)
            self._left[key] = report
        else:
            self._left.pop(key, None)
            self._units[key] = report

    def begin(self) -> None:
        """Mark everything to be sent again."""
        for level in self._levels.values():
            level.begin()

    def refused(self, batch: ReportBatch) -> None:
        """Take a batch back that was refused as a whole, and so by what it reported of sources. Units are
        sent without them first, as they hold: a source that is refused again must not end their leases."""
        self._units_alone = bool(batch.sources)
        for unit in batch.units:
            key = (unit.level, unit.processor, unit.key_group)
            if unit.left and key not in self._units:
                self._left.setdefault(key, unit)

    def take_report(self, client_id: str, sequence: int, epoch: int, begins: bool) -> ReportBatch:
        """Return what has changed, which then counts as sent; units are sent each time, to renew leases.

        What is too much for one batch is left for the next, see `more`.
        """
        sources = () if self._units_alone else self._take_sources(sequence)
        self.more = any(
            not state.said or bool(state.changed.any())
            for level in self._levels.values()
            for state in level.partitions.values()
        )
        self.withheld = self._units_alone and self.more
        self._units_alone = False
        units = (*self._units.values(), *self._left.values())
        self._left.clear()
        return ReportBatch(client_id, sequence, epoch, begins, sources, units)

    def _take_sources(self, sequence: int) -> tuple[SourceReport, ...]:
        sources: list[SourceReport] = []
        rows = 0
        for name, level in self._levels.items():
            for partition, state in level.partitions.items():
                at = np.flatnonzero(state.changed)
                if not at.size and state.said:
                    continue
                if rows and rows + at.size > ROWS_MAX:
                    continue
                rows += at.size
                fresh = tuple(level.names[level.sent_names :])
                events = state.events[at]
                sources.append(
                    SourceReport(
                        level=name,
                        partition=partition,
                        generation=state.generation,
                        partitions=state.partitions,
                        hosts=fresh,
                        hosts_from=level.sent_names,
                        index=at.astype("<i4").tobytes(),
                        latest_ms=state.latest_ms[at].astype("<i8").tobytes(),
                        events=events.astype("<i8").tobytes() if events.any() else b"",
                    )
                )
                level.sent_names = len(level.names)
                state.changed[at] = False
                state.events[at] = 0
                if not state.said:
                    state.said, state.said_in = True, sequence
        return tuple(sources)
