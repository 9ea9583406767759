"""The cuboids of a cube: which combinations of dimensions are built, and each from which other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol, TypeVar

import msgspec

from rtolap.model.cube import AggregationGroup, Cube


class Cuboid(msgspec.Struct, frozen=True):
    """A subset of a cube's dimensions, in the cube's order."""

    dimensions: tuple[str, ...]

    @property
    def name(self) -> str:
        """`base`-independent and path-safe: dimension names joined by `+`, or `_all` for none."""
        return "+".join(self.dimensions) or "_all"


class Sized(Protocol):
    """A cuboid that is stored somewhere, with the number of its rows."""

    @property
    def dimensions(self) -> Sequence[str]: ...

    @property
    def rows(self) -> int: ...


S = TypeVar("S", bound=Sized)


def smallest_covering(stored: Iterable[S], needed: Collection[str]) -> S | None:
    """Return the one with the fewest rows that holds every dimension that is read or filtered by; None where
    none does. History and receivers choose by it."""
    wanted = frozenset(needed)
    covering = [cuboid for cuboid in stored if wanted.issubset(cuboid.dimensions)]
    return min(covering, key=lambda cuboid: (cuboid.rows, len(cuboid.dimensions)), default=None)


def cuboids(cube: Cube) -> tuple[Cuboid, ...]:
    """Base cuboid first, then those of the aggregation groups, larger before smaller, each once."""
    order = {name: position for position, name in enumerate(cube.all_dimensions)}
    wanted: set[frozenset[str]] = set()
    for group in cube.aggregation_groups:
        wanted.update(_group_cuboids(group))
    wanted.discard(frozenset(cube.all_dimensions))
    ordered = [tuple(sorted(dimensions, key=order.__getitem__)) for dimensions in wanted]
    ordered.sort(key=lambda dimensions: (-len(dimensions), dimensions))
    return (Cuboid(cube.all_dimensions), *(Cuboid(dimensions) for dimensions in ordered))


def _group_cuboids(group: AggregationGroup) -> set[frozenset[str]]:
    bound = set(group.mandatory).union(*group.hierarchies, *group.joints)
    # Each choice is a list of alternatives of which a cuboid takes exactly one.
    choices: list[list[frozenset[str]]] = [
        [frozenset(), frozenset((name,))] for name in group.include if name not in bound
    ]
    choices += [[frozenset(), frozenset(joint)] for joint in group.joints]
    choices += [
        [frozenset(hierarchy[:depth]) for depth in range(len(hierarchy) + 1)]
        for hierarchy in group.hierarchies
    ]
    found = {frozenset(group.mandatory)}
    for alternatives in choices:
        found = {chosen | alternative for chosen in found for alternative in alternatives}
    return found


def smallest_parents(all_cuboids: tuple[Cuboid, ...], sizes: dict[str, int]) -> dict[str, str]:
    """For each cuboid but the first, the name of the cheapest cuboid already built that contains it.

    `sizes` gives known sizes by name, all in rows or all in bytes; an unknown one counts as large as its
    number of dimensions suggests. Greedy from the largest cuboid down, as a build goes.
    """
    parents: dict[str, str] = {}
    for position, cuboid in enumerate(all_cuboids[1:], start=1):
        candidates = [
            other for other in all_cuboids[:position] if set(cuboid.dimensions) <= set(other.dimensions)
        ]
        best = min(
            candidates,
            key=lambda other: (sizes.get(other.name, len(other.dimensions) << 40), len(other.dimensions)),
        )
        parents[cuboid.name] = best.name
    return parents
