"""Fleets as they are when a plan is done."""

from __future__ import annotations

import numpy as np
from rtolap.fleet.planning.plan import Plan
from rtolap.fleet.planning.planned_state import state_with
from rtolap.fleet.snapshot.model import UNKNOWN, Snapshot


def state_after(plan: Plan, snapshot: Snapshot) -> Snapshot:
    """Return the fleet of the snapshot when the plan, which was made of it, is done."""
    ids = snapshot.brokers.ids
    topics = {name: row for row, name in enumerate(snapshot.topics.names)}
    keys = snapshot.partitions.topics.astype(np.int64) << 32 | snapshot.partitions.numbers
    owners = np.array([topics[name] for name in plan.topics], np.int64)
    partitions = np.searchsorted(keys, owners[plan.partition_topics] << 32 | plan.partition_numbers)
    state = snapshot
    for stage in range(plan.stage_count):
        mine = np.flatnonzero(plan.stages == stage)
        mine = mine[np.argsort(partitions[mine], kind="stable")]
        counts = np.diff(plan.after.first)[mine]
        shape = (mine.size, max(int(counts.max(initial=1)), 1))
        brokers, log_dirs = np.full(shape, UNKNOWN, np.int32), np.full(shape, UNKNOWN, np.int32)
        for slot in range(shape[1]):
            there = counts > slot
            at = plan.after.first[mine[there]] + slot
            brokers[there, slot] = np.searchsorted(ids, plan.after.brokers[at])
            log_dirs[there, slot] = plan.after.log_dirs[at]
        elected = partitions[mine[np.isin(mine, plan.elections)]]
        state = state_with(state, partitions[mine], brokers, log_dirs, elected)
    return state
