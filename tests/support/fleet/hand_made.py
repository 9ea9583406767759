"""Small fleets, written down: brokers with their racks, topics with the brokers of each partition."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from rtolap.fleet.planning.plan import Plan
from rtolap.fleet.planning.planned_state import state_with
from rtolap.fleet.snapshot.model import (
    UNKNOWN,
    Brokers,
    BrokerState,
    FleetSnapshot,
    LogDirs,
    MissingFact,
    Partitions,
    Quota,
    Replicas,
    ReplicaState,
    Topics,
)

DISK_BYTES = 1000


def hand_made(
    racks: Mapping[int, str | None],
    topics: Mapping[str, Sequence[Sequence[int]]],
    *,
    min_in_sync: Mapping[str, int] | None = None,
    out_of_sync: Collection[tuple[str, int, int]] = (),
    removing: Collection[tuple[str, int, int]] = (),
    absent: Collection[int] = (),
    fenced: Collection[int] = (),
    used_bytes: Mapping[int, int] | None = None,
    offline: Collection[int] = (),
    cordoned: Collection[int] = (),
    quotas: Sequence[Quota] = (),
    missing: Sequence[MissingFact] = (),
    controller: int = UNKNOWN,
    cluster_id: str = "c",
) -> FleetSnapshot:
    """Return a small fleet. `out_of_sync` and `removing` are replicas as (topic, partition, broker). Every
    broker has one disk of `DISK_BYTES`, whose directory is /d."""
    ids = sorted(racks)
    rows = {broker: row for row, broker in enumerate(ids)}
    names = tuple(sorted(topics))
    partitions = [(t, n, of) for t, name in enumerate(names) for n, of in enumerate(topics[name])]
    replicas = [(p, names[t], n, broker) for p, (t, n, of) in enumerate(partitions) for broker in of]
    states = [
        BrokerState.ABSENT if i in absent else BrokerState.FENCED if i in fenced else BrokerState.ALIVE
        for i in ids
    ]
    used = used_bytes or {}
    found = FleetSnapshot(
        cluster_id=cluster_id,
        taken_at_ms=0,
        controller=controller,
        brokers=Brokers(
            np.array(ids, np.int32),
            tuple(f"kafka-{i}" for i in ids),
            np.full(len(ids), 9092, np.int32),
            tuple(racks[i] for i in ids),
            np.array(states, np.int8),
        ),
        log_dirs=LogDirs(
            np.arange(len(ids), dtype=np.int32),
            ("/d",) * len(ids),
            np.full(len(ids), DISK_BYTES),
            np.array([DISK_BYTES - used.get(i, 0) for i in ids], np.int64),
            np.array([i in offline for i in ids], np.bool_),
            np.array([i in cordoned for i in ids], np.bool_),
        ),
        topics=Topics(
            names,
            np.array([(min_in_sync or {}).get(name, UNKNOWN) for name in names], np.int32),
            np.array([name.startswith("__") for name in names], np.bool_),
        ),
        partitions=Partitions(
            np.array([t for t, _, _ in partitions], np.int32),
            np.array([n for _, n, _ in partitions], np.int32),
            np.array([rows[of[0]] for _, _, of in partitions], np.int32),
            np.concatenate(([0], np.cumsum([len(of) for _, _, of in partitions]))).astype(np.int64),
            np.full(len(partitions), np.nan),
            np.full(len(partitions), np.nan),
        ),
        replicas=Replicas(
            partitions=np.array([p for p, _, _, _ in replicas], np.int32),
            brokers=np.array([rows[broker] for _, _, _, broker in replicas], np.int32),
            log_dirs=np.array([rows[broker] for _, _, _, broker in replicas], np.int32),
            size_bytes=np.ones(len(replicas), np.int64),
            lag=np.zeros(len(replicas), np.int64),
            in_sync=np.array([(t, n, b) not in out_of_sync for _, t, n, b in replicas], np.bool_),
            states=np.array(
                [
                    ReplicaState.REMOVING if (t, n, b) in removing else ReplicaState.STAYING
                    for _, t, n, b in replicas
                ],
                np.int8,
            ),
            future_log_dirs=np.full(len(replicas), UNKNOWN, np.int32),
            future_bytes=np.full(len(replicas), UNKNOWN, np.int64),
        ),
        quotas=tuple(quotas),
        missing=tuple(missing),
    )
    found.check()
    return found


def state_after(plan: Plan, snapshot: FleetSnapshot) -> FleetSnapshot:
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
