"""Levelling a cube that runs: as few partitions change hands as a level assignment allows."""

from __future__ import annotations

from collections.abc import Sequence

from rtolap.coordinator.assigners.plan import Plan, ReplicaSetLoad


def rebalance(
    current: Plan, partitions: Sequence[int], tasks_max: int, replica_sets: Sequence[ReplicaSetLoad]
) -> Plan:
    """1. Choose k = min(max(1, tasks_max), replica sets, partitions) of `replica_sets`: those that hold most
       of the cube now first, then those that hold the fewest partitions of other cubes, then by name.
    2. Each is to have floor(partitions / k), and the first ones of step 1 one more while there is a rest.
    3. Each keeps what it has, up to that. What is over, or with a replica set that was not chosen, goes in
       order to those that lack partitions.

    `replica_sets` are those that may be given partitions, with what they hold of other cubes. Only what has
    to move moves: a level assignment over the same replica sets comes out unchanged.
    """
    wanted = sorted(set(partitions))
    held = {name: sorted(set(assigned) & set(wanted)) for name, assigned in current.items()}
    chosen = sorted(
        replica_sets, key=lambda load: (-len(held.get(load.name, ())), load.partitions, load.name)
    )[: min(max(1, tasks_max), len(replica_sets), len(wanted))]
    if not chosen:
        return {}
    share, rest = divmod(len(wanted), len(chosen))
    room = {load.name: share + (position < rest) for position, load in enumerate(chosen)}
    plan = {name: held.get(name, [])[: room[name]] for name in room}
    kept = {partition for assigned in plan.values() for partition in assigned}
    moving = [partition for partition in wanted if partition not in kept]
    for name, assigned in plan.items():
        lacking = room[name] - len(assigned)
        plan[name], moving = sorted([*assigned, *moving[:lacking]]), moving[lacking:]
    return {name: tuple(assigned) for name, assigned in plan.items()}
