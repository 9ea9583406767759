"""The fleet as it is when a plan, or a part of one, is done: a snapshot, from which further plans can be
made.

A copy is as large as the largest replica of its partition that is known, and in sync. A partition whose
leader goes is led by the first of its replicas.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rtolap.fleet.planning.placement import Placement
from rtolap.fleet.snapshot.model import UNKNOWN, Flags, FleetSnapshot, Int32s, Int64s, Replicas, ReplicaState


def state_with(
    snapshot: FleetSnapshot,
    rows: Int64s,
    brokers: Int32s,
    log_dirs: Int32s,
    elected: Int64s | None = None,
) -> FleetSnapshot:
    """Return the snapshot with other replicas of some partitions.

    rows: distinct partitions, in ascending order. brokers, log_dirs: their replicas by preference, as rows of
    the snapshot, UNKNOWN where there is none. elected: partitions that their first replica leads.
    """
    replicas, partitions = snapshot.replicas, snapshot.partitions
    changes = np.zeros(len(partitions), np.bool_)
    changes[rows] = True
    old = np.flatnonzero(changes[replicas.partitions])
    keep = np.flatnonzero(~changes[replicas.partitions])
    present = brokers != UNKNOWN
    owners = np.repeat(rows, present.sum(axis=1))
    new_brokers, new_dirs = brokers[present], log_dirs[present]
    match, stays = _matched(replicas, old, owners, new_brokers, new_dirs)
    copy_bytes = np.full(len(partitions), UNKNOWN, np.int64)
    np.maximum.at(copy_bytes, replicas.partitions, replicas.size_bytes)
    fresh = {
        "partitions": owners.astype(np.int32),
        "brokers": new_brokers.astype(np.int32),
        "log_dirs": np.where(stays, replicas.log_dirs[match], new_dirs).astype(np.int32),
        "size_bytes": np.where(stays, replicas.size_bytes[match], copy_bytes[owners]),
        "lag": np.where(stays, replicas.lag[match], 0),
        "in_sync": np.where(stays, replicas.in_sync[match], True),
        "states": np.full(owners.size, ReplicaState.STAYING, np.int8),
        "future_log_dirs": np.full(owners.size, UNKNOWN, np.int32),
        "future_bytes": np.full(owners.size, UNKNOWN, np.int64),
    }
    order = np.argsort(np.concatenate((replicas.partitions[keep], fresh["partitions"])), kind="stable")
    columns = {
        name: np.concatenate((getattr(replicas, name)[keep], column))[order] for name, column in fresh.items()
    }
    counts = np.bincount(columns["partitions"], minlength=len(partitions))
    leaders = partitions.leaders.copy()
    first = brokers[:, 0]
    gone = (leaders[rows] != UNKNOWN) & ~(brokers == leaders[rows][:, None]).any(axis=1)
    leaders[rows[gone]] = first[gone]
    after = replace(
        partitions,
        leaders=leaders,
        first_replicas=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
    )
    state = replace(
        snapshot,
        partitions=after,
        replicas=Replicas(**columns),
        log_dirs=replace(
            snapshot.log_dirs,
            usable_bytes=_usable(snapshot, old, match[stays], owners, new_dirs, stays, copy_bytes),
        ),
    )
    if elected is not None and elected.size:
        leaders[elected] = columns["brokers"][after.first_replicas[elected]]
    return state


def _matched(
    replicas: Replicas, old: Int64s, owners: Int64s, brokers: Int32s, log_dirs: Int32s
) -> tuple[Int64s, Flags]:
    """Return for each new replica the one that its broker had, if it had one, and whether it stays there."""
    old_keys = replicas.partitions[old].astype(np.int64) << 32 | replicas.brokers[old]
    keys = owners.astype(np.int64) << 32 | brokers
    order = np.argsort(old_keys, kind="stable")
    place = np.minimum(np.searchsorted(old_keys[order], keys), max(order.size - 1, 0))
    if not order.size:
        return np.zeros(keys.size, np.int64), np.zeros(keys.size, np.bool_)
    there = old_keys[order][place] == keys
    match: Int64s = old[order[place]]
    same = (log_dirs == UNKNOWN) | (log_dirs == replicas.log_dirs[match])
    stays: Flags = there & same
    return match, stays


def _usable(
    snapshot: FleetSnapshot,
    old: Int64s,
    staying: Int64s,
    owners: Int64s,
    new_dirs: Int32s,
    stays: Flags,
    copy_bytes: Int64s,
) -> Int64s:
    replicas, dirs = snapshot.replicas, snapshot.log_dirs
    own = np.where(replicas.size_bytes == UNKNOWN, copy_bytes[replicas.partitions], replicas.size_bytes)
    change = np.zeros(len(dirs), np.int64)
    going = np.setdiff1d(old, staying)
    going = going[replicas.log_dirs[going] != UNKNOWN]
    np.add.at(change, replicas.log_dirs[going], np.maximum(own[going], 0))
    coming = ~stays & (new_dirs != UNKNOWN)
    np.subtract.at(change, new_dirs[coming], np.maximum(copy_bytes[owners[coming]], 0))
    known = (dirs.usable_bytes != UNKNOWN) & (dirs.total_bytes != UNKNOWN)
    usable: Int64s = np.where(
        known, np.clip(dirs.usable_bytes + change, 0, np.maximum(dirs.total_bytes, 0)), dirs.usable_bytes
    )
    return usable


def state_of(placement: Placement) -> FleetSnapshot:
    """Return the snapshot of a placement whose changes are done."""
    rows = placement.changed()
    return state_with(placement.snapshot, rows, placement.brokers[rows], placement.log_dirs[rows])
