"""Majorities: more than half of each tablet's replicas must have what counts."""

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
    nodes: dict[Tablet, list[str]] = defaultdict(list)
    for replica in replicas:
        nodes[replica.tablet].append(replica.node)
    for tablet in sorted(nodes):
        without = tuple(node for node in sorted(nodes[tablet]) if tablet not in holders.get(node, ()))
        needed = len(nodes[tablet]) // 2 + 1
        have = len(nodes[tablet]) - len(without)
        if have < needed:
            return Shortfall(tablet, have, needed, without)
    return None
