"""The plan of a consumer: which shares it claims, and which it gives back.

    1. consumers stand in the order in which they joined
    2. each has shares / consumers as its quota, and the first ones one more until all are given
    3. whoever holds more than its quota gives the last ones back; whoever holds less claims free ones

Every consumer computes this by itself from what ZooKeeper shows. Two that see different moments may both
claim a share; one of them gets it. All see the same in the end, and then nobody changes anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SharePlan:
    claim: tuple[int, ...] = ()
    release: tuple[int, ...] = ()


def quotas(members: Sequence[str], count: int) -> dict[str, int]:
    """Return how many of `count` shares each consumer is to hold. `members`: in the order of joining."""
    if not members:
        return {}
    least, more = divmod(count, len(members))
    return {member: least + (rank < more) for rank, member in enumerate(members)}


def plan(own: str, members: Sequence[str], holders: Mapping[int, str], count: int) -> SharePlan:
    """Return what the consumer `own` has to change. `holders`: the consumer that holds each share; free ones
    are not in it."""
    quota = quotas(members, count).get(own, 0)
    held = sorted(number for number, holder in holders.items() if holder == own)
    if len(held) > quota:
        return SharePlan(release=tuple(held[quota:]))
    free = [number for number in range(count) if number not in holders]
    if not free or len(held) == quota:
        return SharePlan()
    # each begins elsewhere, so that consumers that start together do not all reach for the same share
    first = members.index(own) * count // len(members)
    turned = sorted(free, key=lambda number: (number - first) % count)
    return SharePlan(claim=tuple(turned[: quota - len(held)]))
