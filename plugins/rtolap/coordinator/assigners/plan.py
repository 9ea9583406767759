"""The input of an assigner, its result, and the test that every result has to pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from rtolap.base.errors import Refused

Plan = dict[str, tuple[int, ...]]  # replica set → partitions


class ReplicaSetLoad(msgspec.Struct, frozen=True):
    """A replica set that has receivers, and what it holds of other cubes."""

    name: str
    cubes: int = 0
    partitions: int = 0


Assigner = Callable[[Sequence[int], int, Sequence[ReplicaSetLoad]], Plan]
"""(partitions of the cube, at most so many replica sets, replica sets) → plan. Pure."""


def validate_plan(plan: Plan, partitions: Iterable[int], replica_sets: Mapping[str, Sequence[str]]) -> None:
    """Each partition in exactly one replica set, each replica set exists and has receivers.

    `replica_sets`: name → its receivers. A replica set without partitions in the plan may be empty: it only
    answers for what it still holds. Raises Refused.
    """
    for name, assigned in plan.items():
        if name not in replica_sets:
            raise Refused("the plan names an unknown replica set", expected=sorted(replica_sets), found=name)
        if assigned and not replica_sets[name]:
            raise Refused(
                f"replica set {name} has no receiver", action="start one, or leave the set out of the plan"
            )
    counts = Counter(partition for assigned in plan.values() for partition in assigned)
    twice = sorted(partition for partition, count in counts.items() if count > 1)
    wanted = set(partitions)
    missing, strange = sorted(wanted - set(counts)), sorted(set(counts) - wanted)
    if twice or missing or strange:
        raise Refused(
            "the plan does not give each partition to exactly one replica set",
            expected=sorted(wanted),
            found=f"twice {twice}, missing {missing}, unknown {strange}",
        )
