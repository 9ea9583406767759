"""The order of a plan's moves: stages, such that every disk has room at every moment.

Within a stage moves may be made in any order, all at once too: what comes fits below the limit whatever
leaves meanwhile. What has left by the end of a stage is room for the next. Most plans have one stage.

A stage takes every partition whose copies fit, the largest first. Where none fits because disks wait for each
other, replicas make a stop: they go to a third disk that has room and where the rules let them stand, and on
to their places in a later stage. Each stop costs its bytes once more, so as few stop as let another partition
go. What finds no order stays where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rtolap.fleet.planning.placement import NO_RACK, Placement
from rtolap.fleet.snapshot.model import UNKNOWN, Int32s, Int64s

STOPS_MAX = 16


@dataclass(frozen=True, eq=False)
class PlanStage:
    """A stage of a plan.

    Attributes:
        rows: Partitions in ascending order.
        brokers_before: Rows of brokers by preference, before the stage.
        log_dirs_before: Rows of log directories by preference, before the stage.
        brokers: The same after the stage.
        log_dirs: The same after the stage.
    """

    rows: Int64s
    brokers_before: Int32s
    log_dirs_before: Int32s
    brokers: Int32s
    log_dirs: Int32s


def one_stage(placement: Placement, rows: Int64s) -> PlanStage:
    """Return all changes of these partitions at once."""
    return PlanStage(
        rows,
        placement.brokers_before[rows],
        placement.log_dirs_before[rows],
        placement.brokers[rows],
        placement.log_dirs[rows],
    )


def in_stages(placement: Placement) -> tuple[PlanStage, ...]:
    """Order the changes of a placement. Where some find no order, the placement is left without them."""
    rows = placement.changed()
    if not rows.size:
        return ()
    if (placement.incoming_bytes <= placement.incoming_max_bytes()).all():
        return (one_stage(placement, rows),)
    return _Ordering(placement, rows.tolist()).run()


@dataclass
class _Change:
    """A partition that changes.

    Attributes:
        at: Present directories of its replicas, by slot.
        to: Planned directories, by slot.
        size_bytes: Size of one copy.
    """

    partition: int
    at: dict[int, int]
    to: dict[int, int]
    size_bytes: int


class _Ordering:
    """An order of moves in stages. `room` has the bytes of each directory that are free below the limit,
    after the stages so far."""

    def __init__(self, placement: Placement, rows: Sequence[int]) -> None:
        self._placement = placement
        limit = (placement.disk_limit * placement.total_bytes).astype(np.int64)
        free = limit - placement.used_bytes - placement.running_bytes
        self._room: list[int] = np.where(placement.takes, free, 0).tolist()
        self._brokers = placement.brokers_before.copy()
        self._log_dirs = placement.log_dirs_before.copy()
        self._pending = [self._change(row) for row in rows]
        self._pending.sort(key=lambda change: (-change.size_bytes, change.partition))
        self._stops = 0

    def run(self) -> tuple[PlanStage, ...]:
        stages: list[PlanStage] = []
        while self._pending:
            fitting = self._fitting()
            if not fitting:
                stop = self._stop() if self._stops < STOPS_MAX else None
                if stop is None:
                    break
                stages.append(stop)
                continue
            stages.append(self._made({change.partition: change.to for change in fitting}))
            done = {change.partition for change in fitting}
            self._pending = [change for change in self._pending if change.partition not in done]
        self._placement.adopt(self._brokers, self._log_dirs)
        return tuple(stages)

    def _change(self, row: int) -> _Change:
        placement = self._placement
        slots = np.flatnonzero(placement.log_dirs[row] != placement.log_dirs_before[row]).tolist()
        return _Change(
            row,
            {slot: int(placement.log_dirs_before[row, slot]) for slot in slots},
            {slot: int(placement.log_dirs[row, slot]) for slot in slots},
            int(placement.partition_bytes[row]),
        )

    def _fitting(self) -> list[_Change]:
        room, found = list(self._room), []
        for change in self._pending:
            if all(room[log_dir] >= change.size_bytes for log_dir in change.to.values()):
                found.append(change)
                for log_dir in change.to.values():
                    room[log_dir] -= change.size_bytes
        return found

    def _stop(self) -> PlanStage | None:
        """Send replicas aside, as few bytes as it takes, after which another partition fits."""
        for lacking, log_dir, other in sorted(self._lacking(), key=lambda each: (each[0], each[2].partition)):
            leaving = [
                change
                for change in reversed(self._pending)
                if change is not other and len(change.to) == 1 and log_dir in change.at.values()
            ]
            for aside in self._sets(leaving, lacking):
                stops = self._stops_of(aside)
                if stops is not None:
                    self._stops += len(stops)
                    for change in aside:
                        change.at = dict(stops[change.partition])
                    return self._made(stops)
        return None

    def _lacking(self) -> list[tuple[int, int, _Change]]:
        """Return pending partitions that one directory keeps waiting, with that and the bytes that it
        lacks."""
        found = []
        for change in self._pending:
            short = [
                (change.size_bytes - self._room[log_dir], log_dir)
                for log_dir in change.to.values()
                if self._room[log_dir] < change.size_bytes
            ]
            if len(short) == 1:
                found.append((*short[0], change))
        return found

    def _sets(self, leaving: list[_Change], lacking: int) -> list[list[_Change]]:
        """Return what could stop on its way so that so many bytes leave: each by itself that is enough, the
        smallest first, and then as few as possible together. leaving: the smallest first."""
        alone = [[change] for change in leaving if change.size_bytes >= lacking]
        together: list[_Change] = []
        for change in reversed([change for change in leaving if change.size_bytes < lacking]):
            together.append(change)
            if sum(each.size_bytes for each in together) >= lacking:
                return [*alone, together]
        return alone

    def _stops_of(self, aside: list[_Change]) -> dict[int, dict[int, int]] | None:
        """Return where each stops, by partition and slot; None where one finds no place."""
        room = list(self._room)
        stops: dict[int, dict[int, int]] = {}
        for change in aside:
            ((slot, at),) = change.at.items()
            via = self._via(change, slot, at, room)
            if via is None:
                return None
            room[via] -= change.size_bytes
            stops[change.partition] = {slot: via}
        return stops

    def _via(self, change: _Change, slot: int, at: int, room: list[int]) -> int | None:
        """Return the directory with most room where the replica may stand meanwhile."""
        placement = self._placement
        brokers = placement.snapshot.log_dirs.brokers
        waiting = {log_dir for _, log_dir, _ in self._lacking()}
        best: int | None = None
        for log_dir in np.flatnonzero(placement.takes).tolist():
            # A disk that others wait for would only make them wait longer.
            if log_dir in waiting or log_dir == at or room[log_dir] < change.size_bytes:
                continue
            if not self._may_stand(change.partition, slot, int(brokers[log_dir])):
                continue
            if best is None or room[log_dir] > room[best]:
                best = log_dir
        return best

    def _may_stand(self, partition: int, slot: int, broker: int) -> bool:
        placement = self._placement
        holders = self._brokers[partition]
        if broker == holders[slot]:
            return True
        if broker in holders or not placement.allowed.by_rule[placement.rules[partition], broker]:
            return False
        racks = placement.racks[holders]
        own, there = int(racks[slot]), int(placement.racks[broker])
        others = np.delete(racks, slot)
        others = others[others != NO_RACK]
        return own == there or int((others == there).sum()) < max(int((others == own).sum()) + 1, 1)

    def _slot_bytes(self, partition: int, slot: int) -> int:
        placement = self._placement
        if self._log_dirs[partition, slot] == placement.log_dirs_before[partition, slot]:
            return int(placement.replica_bytes[partition, slot])
        return int(placement.partition_bytes[partition])

    def _made(self, changes: dict[int, dict[int, int]]) -> PlanStage:
        rows = np.array(sorted(changes), np.int64)
        brokers_before, log_dirs_before = self._brokers[rows], self._log_dirs[rows]
        dir_brokers = self._placement.snapshot.log_dirs.brokers
        for partition, moves in changes.items():
            size = int(self._placement.partition_bytes[partition])
            for slot, log_dir in moves.items():
                old = int(self._log_dirs[partition, slot])
                if old != UNKNOWN:
                    self._room[old] += self._slot_bytes(partition, slot)
                self._room[log_dir] -= size
                self._brokers[partition, slot] = dir_brokers[log_dir]
                self._log_dirs[partition, slot] = log_dir
        return PlanStage(rows, brokers_before, log_dirs_before, self._brokers[rows], self._log_dirs[rows])
