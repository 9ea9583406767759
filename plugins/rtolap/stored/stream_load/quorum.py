"""Majorities: more than half of each tablet's replicas must have what counts.

While a replica moves, a tablet has two sets of replicas: those before the switch and those after it. A
majority of either counts. The old replica is given up only when all that was decided by the set before it is
on a majority of the set after it (`stored.frontend.moves`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rtolap.stored.metastore.records import Replica, Tablet


@dataclass(frozen=True)
class Shortfall:
    """A tablet that too few replicas have: `have` of `needed`, the others on `without`."""

    tablet: Tablet
    have: int
    needed: int
    without: tuple[str, ...]


def shortfall(replicas: Collection[Replica], holders: Mapping[str, Collection[Tablet]]) -> Shortfall | None:
    """Return the first tablet, in order, that less than a majority of its replicas hold; None when there is
    none. `holders` has the tablets of each node; tablets that are no replicas do not count.
    """
    by_tablet: dict[Tablet, list[Replica]] = defaultdict(list)
    for replica in replicas:
        by_tablet[replica.tablet].append(replica)
    for tablet in sorted(by_tablet):
        after, before = (
            _short(tablet, [each.node for each in by_tablet[tablet] if each.role != role], holders)
            for role in ("leaving", "joining")
        )
        if after is not None and before is not None:
            return after
    return None


def _short(
    tablet: Tablet, nodes: Collection[str], holders: Mapping[str, Collection[Tablet]]
) -> Shortfall | None:
    without = tuple(node for node in sorted(nodes) if tablet not in holders.get(node, ()))
    needed = len(nodes) // 2 + 1
    have = len(nodes) - len(without)
    return Shortfall(tablet, have, needed, without) if have < needed else None
