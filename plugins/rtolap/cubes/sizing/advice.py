"""Cuboids that would save the most rows of a workload.

The choice is greedy: of all candidates the one whose rows, in the place of those that are read now, save
most, then the next one beside it, and so on (Harinarayan, Rajaraman and Ullman, "Implementing data cubes
efficiently", 1996: at least 63 % of what the best choice of as many would save).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from rtolap.cubes.sizing.estimate import CuboidSize
from rtolap.model.cube import smallest_covering

Needed = frozenset[str]  # dimensions of a statement's groups and filters
CANDIDATES_MAX = 200
_PAIRED_MAX = 50  # kinds of statements, of which each two are looked at together


@dataclass(frozen=True)
class Advice:
    """A cuboid that would pay.

    Attributes:
        statements: of the workload that it would answer, where larger ones do now.
        saved_rows: that these would not read, for each segment that they read.
    """

    cuboid: CuboidSize
    statements: int
    saved_rows: int


def candidates(workload: Mapping[Needed, int], existing: Iterable[Needed]) -> list[Needed]:
    """Return what statements need, and what two of them need together, without what is there: those of the
    most statements first, CANDIDATES_MAX at most."""
    there = set(existing)
    wanted = Counter(dict(workload))
    often = sorted(workload, key=lambda each: (-workload[each], _order(each)))[:_PAIRED_MAX]
    for one, other in combinations(often, 2):
        wanted[one | other] += 0
    covered = {each: sum(count for need, count in workload.items() if need <= each) for each in wanted}
    found = [each for each in wanted if each not in there]
    return sorted(found, key=lambda each: (-covered[each], _order(each)))[:CANDIDATES_MAX]


def advise(
    stored: Sequence[CuboidSize],
    proposed: Sequence[CuboidSize],
    workload: Mapping[Needed, int],
    *,
    most: int,
    bytes_max: int | None = None,
) -> list[Advice]:
    """Choose at most `most` of the proposed cuboids, the first one saving most.

    Args:
        stored: cuboids that there are, the base cuboid among them.
        workload: needed dimensions → statements.
        bytes_max: of all that are chosen together, a segment.
    """
    there, left, chosen, room = list(stored), list(proposed), list[Advice](), bytes_max
    while len(chosen) < most:
        fitting = [each for each in left if room is None or each.bytes <= room]
        judged = [_advice(each, there, workload) for each in fitting]
        best = max(judged, key=lambda each: (each.saved_rows, -each.cuboid.bytes), default=None)
        if best is None or best.saved_rows <= 0:
            break
        chosen.append(best)
        there.append(best.cuboid)
        left.remove(best.cuboid)
        room = None if room is None else room - best.cuboid.bytes
    return chosen


def rows_read(stored: Sequence[CuboidSize], workload: Mapping[Needed, int]) -> int:
    """Return the rows that the workload reads in a segment. Raises ValueError where no cuboid answers."""
    total = 0
    for needed, statements in workload.items():
        cuboid = smallest_covering(stored, needed)
        if cuboid is None:
            raise ValueError(f"no cuboid has {sorted(needed)}")
        total += statements * cuboid.rows
    return total


def _advice(proposed: CuboidSize, there: Sequence[CuboidSize], workload: Mapping[Needed, int]) -> Advice:
    statements = saved = 0
    for needed, count in workload.items():
        now = smallest_covering(there, needed)
        if now is not None and needed.issubset(proposed.dimensions) and proposed.rows < now.rows:
            statements += count
            saved += count * (now.rows - proposed.rows)
    return Advice(proposed, statements, saved)


def _order(needed: Needed) -> tuple[int, list[str]]:
    return len(needed), sorted(needed)
