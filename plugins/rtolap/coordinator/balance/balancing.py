"""Plans of moves by which replica sets carry loads that are alike: pure functions.

Loads are whole points: whatever the loads are, the steps end, and their order is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec

from rtolap.coordinator.assigners import Plan

PAYS_PERCENT = 5  # of the average load of a replica set; also in docs/moves.md
FACTOR = 2 + PAYS_PERCENT / 100  # times the smallest possible largest load: what `balanced` promises at most


class Step(msgspec.Struct, frozen=True):
    """A partition that changes hands. `points`: its load."""

    partition: int
    source: str
    target: str
    points: int


class Balance(msgspec.Struct, frozen=True):
    """A plan, and the steps that lead to it. A partition may stand in more than one step."""

    plan: Plan
    steps: tuple[Step, ...]


def pays_from(points: Mapping[int, int], base: Mapping[str, int]) -> int:
    """Return the points that a move has to bring at least: `PAYS_PERCENT` of an average replica set."""
    total = sum(points.values()) + sum(base.values())
    return max(1, total * PAYS_PERCENT // (100 * max(1, len(base))))


def balanced(current: Plan, points: Mapping[int, int], base: Mapping[str, int]) -> Balance:
    """Balance a cube over the replica sets of `base` by few moves, the largest imbalance first.

    `points`: partition → load, of all partitions of the cube; `base`: replica set → load that stays there,
    because it is of other cubes.

    1. Partitions of replica sets outside `base` move first, the heaviest first, each to the replica set with
       the least load.
    2. The replica set with the largest load gives a partition to the one with the smallest. Of those that
       pay, it is the one that lowers the larger of both loads most. Where none pays, the replica set with
       the next smaller load gives one. Repeat until none has anything to give.

    A move pays if the new owner, with the partition, carries less than the old owner has carried, by
    `pays_from` at least, and if the partition is not negligible. A partition is negligible if all
    partitions together, had they its load, would be less than `pays_from`.

    - The largest load never grows in step 2. It ends: the sum of the squared loads shrinks with each move.
    - A second call for the result finds nothing: step 2 has ended because nothing pays.
    - The largest load is at most `FACTOR` times that of the best assignment to these replica sets. Let A
      have the largest load. If A keeps only negligible partitions of the cube, its load is that of other
      cubes, which stays in any assignment, and less than `pays_from`. Otherwise A keeps one of load w that
      is not negligible. It does not pay to give it to the replica set with the smallest load. So the load of
      A is less than that smallest load, w, and `pays_from` together. Neither the smallest load nor w is
      larger than the best largest load, and `pays_from` is 5 % of the average load, which is not larger.
    """
    if not base:
        return Balance(current, ())
    sets = _Sets(current, points, base)
    steps = [*sets.given_up(set(current) - set(base))]
    while (step := sets.next_step()) is not None:
        sets.move(step)
        steps.append(step)
    return Balance(sets.plan(), tuple(steps))


def emptied(
    current: Plan, points: Mapping[int, int], base: Mapping[str, int], leaving: Collection[str]
) -> Balance:
    """Move only what stands in the replica sets `leaving`, as step 1 of `balanced` does."""
    if not base:
        return Balance(current, ())
    sets = _Sets(current, points, base)
    steps = tuple(sets.given_up(leaving))
    return Balance(sets.plan(), steps)


class _Sets:
    """Replica sets while partitions change hands."""

    def __init__(self, current: Plan, points: Mapping[int, int], base: Mapping[str, int]) -> None:
        self._points = points
        self._owned: dict[str, set[int]] = {
            name: set(current.get(name, ())) for name in sorted({*base, *current})
        }
        self._open = sorted(base)
        self._loads = {
            name: base.get(name, 0) + sum(points[p] for p in owned) for name, owned in self._owned.items()
        }
        self._pays_from = pays_from(points, base)

    def plan(self) -> Plan:
        return {name: tuple(sorted(owned)) for name, owned in self._owned.items() if owned}

    def given_up(self, leaving: Collection[str]) -> Iterator[Step]:
        """Move what stands in these replica sets, none of which is open, and yield the steps."""
        closed = [
            (name, partition) for name, owned in self._owned.items() if name in leaving for partition in owned
        ]
        for name, partition in sorted(closed, key=lambda one: (-self._points[one[1]], one[1])):
            step = Step(partition, name, self._smallest(), self._points[partition])
            self.move(step)
            yield step

    def next_step(self) -> Step | None:
        target = self._smallest()
        for source in sorted(self._open, key=lambda name: (-self._loads[name], name)):
            gap = self._loads[source] - self._loads[target]
            if gap < self._pays_from:
                return None
            paying = [p for p in self._owned[source] if self._pays(self._points[p], gap)]
            if paying:
                best = min(paying, key=lambda p: (-min(self._points[p], gap - self._points[p]), p))
                return Step(best, source, target, self._points[best])
        return None

    def move(self, step: Step) -> None:
        self._owned[step.source].remove(step.partition)
        self._owned[step.target].add(step.partition)
        self._loads[step.source] -= step.points
        self._loads[step.target] += step.points

    def _pays(self, points: int, gap: int) -> bool:
        return gap - points >= self._pays_from and points * len(self._points) >= self._pays_from

    def _smallest(self) -> str:
        """Return the open replica set with the smallest load, of several the one with the fewest partitions:
        partitions without any load are spread, too."""
        return min(self._open, key=lambda name: (self._loads[name], len(self._owned[name]), name))
