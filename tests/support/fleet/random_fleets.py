"""Fleets drawn from a seed: `random_fleet` small and odd, `huge_fleet` large and plain, by columns.

Small fleets have 1 to 60 brokers with or without racks, disks of several sizes, some full, offline or
cordoned, dead and fenced brokers, replicas whose size or place nobody tells, and running reassignments.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from rtolap.fleet.snapshot.model import (
    UNKNOWN,
    Brokers,
    BrokerState,
    FleetSnapshot,
    LogDirs,
    Partitions,
    Replicas,
    ReplicaState,
    Topics,
)

GIB = 1 << 30
RETENTION_S = 3 * 86_400  # what a partition of a huge fleet holds was written in that time
TIB = 1 << 40


@dataclass(frozen=True)
class Oddities:
    """How likely a fleet has what makes planning hard, each between 0 and 1."""

    dead: float = 0.25
    bad_disks: float = 0.3
    unknown_sizes: float = 0.15
    unknown_capacities: float = 0.1
    reassignments: float = 0.25
    overfull: float = 0.2


NONE = Oddities(0, 0, 0, 0, 0, 0)


@dataclass
class _Drawn:
    """Replicas as they are drawn, one list a column."""

    partitions: list[int] = field(default_factory=list)
    brokers: list[int] = field(default_factory=list)
    log_dirs: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    states: list[int] = field(default_factory=list)
    futures: list[int] = field(default_factory=list)


def random_fleet(
    seed: int, *, odd: Oddities = Oddities(), brokers_max: int = 60, factor_max: int = 5
) -> FleetSnapshot:
    rng = np.random.default_rng(seed)
    many = int(rng.integers(0, 50)) if rng.random() < 0.2 else 0
    count = min(brokers_max, 1 + int(rng.integers(0, 12)) + many)
    ids = np.sort(rng.choice(np.arange(1, 400), count, replace=False)).astype(np.int32)
    rack_count = 0 if rng.random() < 0.3 else int(rng.integers(1, 7))
    racks = tuple(f"rack-{int(rng.integers(rack_count))}" if rack_count else None for _ in range(count))
    states = np.full(count, BrokerState.ALIVE, np.int8)
    if rng.random() < odd.dead:
        for broker in rng.choice(count, max(1, count // 8), replace=False):
            states[broker] = rng.choice([BrokerState.FENCED, BrokerState.ABSENT])
    brokers = Brokers(ids, tuple(f"kafka-{i}" for i in ids), np.full(count, 9092, np.int32), racks, states)
    dirs_each = rng.integers(1, 4, count) if rng.random() < 0.5 else np.full(count, rng.integers(1, 4))
    dir_brokers = np.repeat(np.arange(count, dtype=np.int32), dirs_each)
    first_dirs = np.concatenate(([0], np.cumsum(dirs_each)))
    topics = [f"topic-{n:02}" for n in range(int(rng.integers(1, 10)))]
    factors = [int(rng.integers(1, min(count, factor_max) + 1)) for _ in topics]
    partition_counts = [int(rng.integers(1, 4 + 40 // len(topics))) for _ in topics]
    owners = np.repeat(np.arange(len(topics), dtype=np.int32), partition_counts)
    numbers = np.concatenate([np.arange(n, dtype=np.int32) for n in partition_counts])
    likely = rng.dirichlet(np.full(count, rng.choice([0.7, 3.0, 20.0]))) + 1e-6
    aware = rng.random() < 0.6
    reassigning = rng.random() < odd.reassignments
    topic_scale = rng.lognormal(0, 1, len(topics))
    drawn = _Drawn()
    for partition, topic in enumerate(owners):
        size = int(GIB * topic_scale[topic] * rng.lognormal(0, 0.8))
        chosen = _chosen(rng, likely, factors[topic], racks if aware else None)
        adding = set()
        if reassigning and rng.random() < 0.1 and len(chosen) < count:
            adding = {next(b for b in rng.permutation(count) if b not in chosen)}
        removing = {chosen[-1]} if adding and rng.random() < 0.8 else set()
        for broker in [*adding, *chosen]:
            here = int(rng.integers(first_dirs[broker], first_dirs[broker + 1]))
            moved = reassigning and not adding and dirs_each[broker] > 1 and rng.random() < 0.02
            others = [d for d in range(first_dirs[broker], first_dirs[broker + 1]) if d != here]
            drawn.partitions.append(partition)
            drawn.brokers.append(int(broker))
            drawn.log_dirs.append(here)
            drawn.sizes.append(
                size // 3 if broker in adding else size - int(rng.integers(0, size // 100 + 1))
            )
            drawn.states.append(
                ReplicaState.ADDING
                if broker in adding
                else ReplicaState.REMOVING
                if broker in removing
                else ReplicaState.STAYING
            )
            drawn.futures.append(int(rng.choice(others)) if moved else UNKNOWN)
    return _assembled(rng, seed, brokers, dir_brokers, topics, owners, numbers, drawn, odd)


def _chosen(
    rng: np.random.Generator, likely: NDArray[np.float64], factor: int, racks: tuple[str | None, ...] | None
) -> list[int]:
    """Return brokers in random order, the likely ones first; each in another rack while there is one, if
    asked."""
    order = [int(b) for b in rng.choice(likely.size, likely.size, replace=False, p=likely / likely.sum())]
    if racks is None:
        return order[:factor]
    found: list[int] = []
    while len(found) < factor:
        used = {racks[b] for b in found}
        left = [b for b in order if b not in found]
        found.append(next((b for b in left if racks[b] is None or racks[b] not in used), left[0]))
    return found


def _assembled(
    rng: np.random.Generator,
    seed: int,
    brokers: Brokers,
    dir_brokers: NDArray[np.int32],
    topics: list[str],
    owners: NDArray[np.int32],
    numbers: NDArray[np.int32],
    drawn: _Drawn,
    odd: Oddities,
) -> FleetSnapshot:
    partitions, replica_brokers = np.array(drawn.partitions, np.int32), np.array(drawn.brokers, np.int32)
    log_dirs, sizes = np.array(drawn.log_dirs, np.int32), np.array(drawn.sizes, np.int64)
    count = dir_brokers.size
    used = np.bincount(log_dirs, sizes, count).astype(np.int64)
    weights = rng.choice([1.0, 2.0, 4.0], count) if rng.random() < 0.5 else np.ones(count)
    whole = max(float(used.sum()), 1.0) / rng.uniform(0.15, 0.8)
    totals = (whole * weights / weights.sum()).astype(np.int64) + 1
    if rng.random() < odd.overfull:
        totals = np.maximum(totals, used)
    else:
        totals = np.maximum(totals, (used * 1.15).astype(np.int64))
    usable = totals - used
    offline, cordoned = np.zeros(count, bool), np.zeros(count, bool)
    if rng.random() < odd.bad_disks:
        offline[rng.choice(count, max(1, count // 12), replace=False)] = rng.random() < 0.5
        cordoned[rng.choice(count, max(1, count // 12), replace=False)] = True
    if rng.random() < odd.unknown_capacities:
        hidden = rng.choice(count, max(1, count // 10), replace=False)
        totals[hidden] = usable[hidden] = UNKNOWN
    dead = brokers.states[dir_brokers] != BrokerState.ALIVE
    gone = brokers.states[dir_brokers] == BrokerState.ABSENT
    totals[gone | offline] = usable[gone | offline] = UNKNOWN
    futures = np.array(drawn.futures, np.int32)
    futures[np.isin(futures, np.flatnonzero(offline | dead))] = UNKNOWN
    silent = offline[log_dirs] | gone[log_dirs]
    if rng.random() < odd.unknown_sizes:
        silent |= rng.random(sizes.size) < 0.1
    reached = ~(offline | dead)[log_dirs]
    states = np.array(drawn.states, np.int8)
    in_sync = reached & (states != ReplicaState.ADDING) & (rng.random(sizes.size) > 0.02)
    futures[silent] = UNKNOWN
    first = np.concatenate(([0], np.cumsum(np.bincount(partitions, minlength=owners.size)))).astype(np.int64)
    leaders = np.full(owners.size, UNKNOWN, np.int32)
    for partition in range(owners.size):
        able = [r for r in range(first[partition], first[partition + 1]) if in_sync[r]]
        if able:
            leaders[partition] = replica_brokers[able[0] if rng.random() < 0.85 else rng.choice(able)]
    hidden_dirs = silent & (rng.random(sizes.size) < 0.5)
    snapshot = FleetSnapshot(
        cluster_id=f"cluster-{seed}",
        taken_at_ms=1_700_000_000_000 + seed,
        controller=int(brokers.ids[0]),
        brokers=brokers,
        log_dirs=LogDirs(
            dir_brokers,
            tuple(f"/data/{n}" for n in _numbers_within(dir_brokers)),
            totals,
            usable,
            offline,
            cordoned,
        ),
        topics=Topics(tuple(topics), np.ones(len(topics), np.int32), np.zeros(len(topics), bool)),
        partitions=Partitions(
            owners,
            numbers,
            leaders,
            first,
            rng.lognormal(10, 1, owners.size),
            rng.lognormal(10, 1, owners.size),
        ),
        replicas=Replicas(
            partitions,
            replica_brokers,
            np.where(hidden_dirs, UNKNOWN, log_dirs).astype(np.int32),
            np.where(silent, UNKNOWN, sizes),
            np.where(in_sync, 0, 1000).astype(np.int64),
            in_sync,
            states,
            futures,
            np.where(futures == UNKNOWN, UNKNOWN, sizes // 2),
        ),
    )
    snapshot.check()
    return snapshot


def _numbers_within(groups: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return 0, 1, … within each run of equal values."""
    starts = np.flatnonzero(np.concatenate(([True], np.diff(groups) != 0)))
    return np.arange(groups.size) - np.repeat(starts, np.diff(np.append(starts, groups.size)))


def huge_fleet(
    *,
    brokers: int = 215,
    racks: int = 5,
    dirs_each: int = 2,
    replicas: int = 2_800_000,
    factor: int = 3,
    topics: int = 5_000,
    empty_brokers: int = 0,
    seed: int = 1,
) -> FleetSnapshot:
    """Return a fleet that placed its partitions across racks and has since grown apart: disks of two sizes,
    sizes over four orders of magnitude, topics that lie on some of the brokers only."""
    rng = np.random.default_rng(seed)
    count = replicas // factor
    broker_racks = np.arange(brokers) % racks
    members = [np.flatnonzero(broker_racks[: brokers - empty_brokers] == rack) for rack in range(racks)]
    rack_order = rng.random((count, racks), np.float32).argsort(axis=1)[:, :factor]
    owners = np.sort(rng.integers(0, topics, count)).astype(np.int32)
    starts = np.searchsorted(owners, np.arange(topics))
    numbers = (np.arange(count) - starts[owners]).astype(np.int32)
    # A topic lies on brokers around a place of its own: those that grew fill some brokers more.
    centre, width = rng.random(topics), rng.uniform(0.15, 1.0, topics)
    place = (centre[owners][:, None] + width[owners][:, None] * rng.random((count, factor))) % 1.0
    chosen = np.empty((count, factor), np.int32)
    for rack, here in enumerate(members):
        inside = rack_order == rack
        chosen[inside] = here[(place[inside] * here.size).astype(np.int64)]
    chosen_brokers = chosen.ravel()
    log_dirs = chosen_brokers * dirs_each + (rng.random(chosen_brokers.size) ** 1.3 * dirs_each).astype(
        np.int32
    )
    topic_scale = rng.lognormal(0, 1.0, topics)
    size = (64e6 * topic_scale[owners] * rng.lognormal(0, 1.0, count)).astype(np.int64)
    sizes = np.repeat(size, factor)
    dirs = brokers * dirs_each
    weights = np.repeat(rng.choice([1.0, 2.0], brokers, p=[0.7, 0.3]), dirs_each)
    used = np.bincount(log_dirs, sizes, dirs)
    totals = np.maximum(used.sum() / 0.55 * weights / weights.sum(), used * 1.02).astype(np.int64)
    nobody = np.full(sizes.size, UNKNOWN, np.int32)
    return FleetSnapshot(
        cluster_id="huge",
        taken_at_ms=1_700_000_000_000,
        controller=0,
        brokers=Brokers(
            np.arange(brokers, dtype=np.int32),
            tuple(f"kafka-{n}" for n in range(brokers)),
            np.full(brokers, 9092, np.int32),
            tuple(f"rack-{n}" for n in broker_racks),
            np.zeros(brokers, np.int8),
        ),
        log_dirs=LogDirs(
            np.repeat(np.arange(brokers, dtype=np.int32), dirs_each),
            tuple(f"/data/{n}" for _ in range(brokers) for n in range(dirs_each)),
            totals,
            (totals - used).astype(np.int64),
            np.zeros(dirs, bool),
            np.zeros(dirs, bool),
        ),
        topics=Topics(
            tuple(f"topic-{n:05}" for n in range(topics)),
            np.full(topics, 2, np.int32),
            np.zeros(topics, bool),
        ),
        partitions=Partitions(
            owners,
            numbers,
            chosen[:, 0].copy(),
            np.arange(0, sizes.size + 1, factor, dtype=np.int64),
            np.rint(size / RETENTION_S),
            np.rint(size / RETENTION_S * rng.uniform(0, 4, topics)[owners]),
        ),
        replicas=Replicas(
            np.repeat(np.arange(count, dtype=np.int32), factor),
            chosen_brokers,
            log_dirs.astype(np.int32),
            sizes,
            np.zeros(sizes.size, np.int64),
            np.ones(sizes.size, bool),
            np.zeros(sizes.size, np.int8),
            nobody,
            np.full(sizes.size, UNKNOWN, np.int64),
        ),
    )
