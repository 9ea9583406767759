"""Assignment of partitions to consumers: pure functions of a snapshot, chosen by name.

Both assigners are published by Apache Kylin; `rebalance`, for a cube that runs, is not. The docstring of each
gives its algorithm. Whatever they answer is validated (`validate_plan`) before it is committed: the original
loses partitions at times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from rtolap.base.errors import Refused
from rtolap.coordinator.placement.racks import spread

Plan = dict[str, tuple[int, ...]]  # replica set → partitions


class ReplicaSetLoad(msgspec.Struct, frozen=True):
    """A replica set that has receivers, and what it holds of other cubes.

    Attributes:
        rack: with which it fails; "" where it is not known, None where it fails with none.
    """

    name: str
    cubes: int = 0
    partitions: int = 0
    rack: str | None = ""


Assigner = Callable[[Sequence[int], int, Sequence[ReplicaSetLoad]], Plan]
"""(partitions of the cube, at most so many replica sets, replica sets) → plan. Pure."""


def gaining(before: Plan, after: Plan) -> list[str]:
    """Return the replica sets that `after` gives partitions which they do not have by `before`."""
    return sorted(name for name, owned in after.items() if set(owned) - set(before.get(name, ())))


def validate_plan(plan: Plan, partitions: Iterable[int], replica_sets: Mapping[str, Sequence[str]]) -> None:
    """Check that each partition is in exactly one replica set, which exists and has receivers.

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


def assign_default(partitions: Sequence[int], tasks_max: int, replica_sets: Sequence[ReplicaSetLoad]) -> Plan:
    """Assign as Kylin's DefaultAssigner does: few consumers per cube, on the replica sets that hold the
    fewest cubes.

    1. Sort the replica sets by the number of cubes they hold, stably.
    2. k = min(max(1, tasks_max), number of replica sets, number of partitions). Of replica sets that hold
       equally many cubes, those in racks with the fewest of the cube come first (not so in Kylin).
    3. The i-th partition goes to task i mod k, the j-th task to the j-th replica set of step 1.
    """
    tasks = min(max(1, tasks_max), len(replica_sets), len(partitions))
    ordered = spread(
        sorted(replica_sets, key=lambda load: load.cubes),
        tasks,
        cost=lambda load: load.cubes,
        rack=lambda load: load.rack,
    )
    return {ordered[task].name: tuple(sorted(partitions))[task::tasks] for task in range(tasks)}


def assign_round_robin(
    partitions: Sequence[int], tasks_max: int, replica_sets: Sequence[ReplicaSetLoad]
) -> Plan:
    """Assign as Kylin's CubePartitionRoundRobinAssigner does: level the number of partitions over all replica
    sets.

    1. Sort the replica sets by the number of partitions they hold, stably.
    2. avg = floor((held by all + new) / number of replica sets).
    3. Fill each in turn with the next partitions until it holds avg.
    4. What is left over goes one by one to the replica sets of step 1, from the first on, round and round.

    `tasks_max` plays no part.
    """
    if not replica_sets:
        return {}
    ordered = sorted(replica_sets, key=lambda load: load.partitions)
    waiting = sorted(partitions)
    average = (sum(load.partitions for load in ordered) + len(waiting)) // len(ordered)
    plan: dict[str, list[int]] = {load.name: [] for load in ordered}
    for load in ordered:
        room = max(0, average - load.partitions)
        plan[load.name], waiting = waiting[:room], waiting[room:]
    for position, partition in enumerate(waiting):
        plan[ordered[position % len(ordered)].name].append(partition)
    return {name: tuple(assigned) for name, assigned in plan.items() if assigned}


def rebalance(
    current: Plan, partitions: Sequence[int], tasks_max: int, replica_sets: Sequence[ReplicaSetLoad]
) -> Plan:
    """Level a cube that runs: as few partitions change hands as a level assignment allows.

    1. Choose k = min(max(1, tasks_max), replica sets, partitions) of `replica_sets`: those that hold most
       of the cube now first, then those that hold the fewest partitions of other cubes, then those in racks
       that hold the fewest of the chosen ones, then by name.
    2. Each is to have floor(partitions / k), and the first ones of step 1 one more while there is a rest.
    3. Each keeps what it has, up to that. What is over, or with a replica set that was not chosen, goes in
       order to those that lack partitions.

    `replica_sets` are those that may be given partitions, with what they hold of other cubes. Only what has
    to move moves: a level assignment over the same replica sets comes out unchanged.
    """
    wanted = sorted(set(partitions))
    owned = {name: sorted(set(assigned) & set(wanted)) for name, assigned in current.items()}

    def cost(load: ReplicaSetLoad) -> tuple[int, int]:
        return -len(owned.get(load.name, ())), load.partitions

    chosen = spread(
        sorted(replica_sets, key=lambda load: (cost(load), load.name)),
        min(max(1, tasks_max), len(replica_sets), len(wanted)),
        cost=cost,
        rack=lambda load: load.rack,
    )
    if not chosen:
        return {}
    share, rest = divmod(len(wanted), len(chosen))
    room = {load.name: share + (position < rest) for position, load in enumerate(chosen)}
    plan = {name: owned.get(name, [])[: room[name]] for name in room}
    unmoved = {partition for assigned in plan.values() for partition in assigned}
    moving = [partition for partition in wanted if partition not in unmoved]
    for name, assigned in plan.items():
        lacking = room[name] - len(assigned)
        plan[name], moving = sorted([*assigned, *moving[:lacking]]), moving[lacking:]
    return {name: tuple(assigned) for name, assigned in plan.items()}


ASSIGNERS: dict[str, Assigner] = {"default": assign_default, "round_robin": assign_round_robin}
DEFAULT_ASSIGNER = "default"
