"""The choice of replica sets that spreads over racks where it costs no balance: a pure function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

S = TypeVar("S")


def spread(
    candidates: Iterable[S],
    count: int,
    *,
    cost: Callable[[S], Hashable],
    rack: Callable[[S], str | None],
    beside: Iterable[str | None] = (),
) -> list[S]:
    """Return the `count` first of the candidates, which are sorted by `cost`; of equal ones those in racks
    that hold the fewest of the chosen ones.

    `beside`: racks of replica sets that are chosen already. None: the replica set fails with no rack, and is
    chosen before others of its cost. A rack of "", which nobody has declared, counts like any other.

    1. Take the candidates with the smallest cost that are not chosen yet.
    2. Choose one that fails with no rack, else the one whose rack holds the fewest chosen ones, the first of
       several.
    3. Repeat until there are enough.

    The costs of the chosen ones are those of the `count` first, so no balance is lost. Of all choices with
    these costs, none has a rack with more replica sets than the fullest rack of this one: a rack gets one
    more only where each other rack of equally cheap candidates holds as many already, or has no candidate.
    """
    left: Sequence[S] = list(candidates)
    held = Counter(place for place in beside if place is not None)
    chosen: list[S] = []
    while left and len(chosen) < count:
        tied = [one for one in left if cost(one) == cost(left[0])]
        best = min(range(len(tied)), key=lambda at: (_held_with(tied[at], held, rack), at))
        chosen.append(tied[best])
        place = rack(tied[best])
        if place is not None:
            held[place] += 1
        left = [*tied[:best], *tied[best + 1 :], *left[len(tied) :]]
    return chosen


def _held_with(candidate: S, held: Counter[str], rack: Callable[[S], str | None]) -> int:
    """Return how many its rack would hold with the candidate; 0 where it fails with none."""
    place = rack(candidate)
    return 0 if place is None else held[place] + 1
