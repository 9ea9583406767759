"""Kylin's CubePartitionRoundRobinAssigner: level the number of partitions over all replica sets."""

from __future__ import annotations

from collections.abc import Sequence

from rtolap.coordinator.assigners.plan import Plan, ReplicaSetLoad


def assign(partitions: Sequence[int], tasks_max: int, replica_sets: Sequence[ReplicaSetLoad]) -> Plan:
    """1. Sort the replica sets by the number of partitions they hold, stably.
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
