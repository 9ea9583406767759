"""Kylin's DefaultAssigner: few consumers per cube, on the replica sets that hold the fewest cubes."""

from __future__ import annotations

from collections.abc import Sequence

from rtolap.coordinator.assigners.plan import Plan, ReplicaSetLoad


def assign(partitions: Sequence[int], tasks_max: int, replica_sets: Sequence[ReplicaSetLoad]) -> Plan:
    """1. Sort the replica sets by the number of cubes they hold, stably.
    2. k = min(max(1, tasks_max), number of replica sets, number of partitions).
    3. The i-th partition goes to task i mod k, the j-th task to the j-th replica set of step 1.
    """
    ordered = sorted(replica_sets, key=lambda load: load.cubes)
    tasks = min(max(1, tasks_max), len(ordered), len(partitions))
    return {ordered[task].name: tuple(sorted(partitions))[task::tasks] for task in range(tasks)}
