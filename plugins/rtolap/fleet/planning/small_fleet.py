"""A fleet that is small enough to be searched replica by replica, as plain columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rtolap.fleet.planning.levels import Band
from rtolap.fleet.planning.placement import NO_RACK, Placement, distinct_racks, fullest_rack
from rtolap.fleet.snapshot.model import Flags, Int64s

CELLS_MAX = 20_000  # pairs of replica and disk


@dataclass(frozen=True, eq=False)
class SmallFleet:
    """Columns as lists. By replica: `home`, a place; own_bytes, copy_bytes: what it holds, and a copy of it;
    `partitions`, whether it is `preferred`, and the `places` that no rule forbids whatever else moves. By
    place: bytes used now, what it may hold below the limit, the band, its broker. By partition:
    `others`, brokers of replicas that are not searched, and how many of it a rack may hold at most
    (`in_rack_max`), and in how many it stands at least (`racks_min`). racks: by broker, as are
    `leading` by preference, and of that what is not searched (`led_elsewhere`)."""

    home: Sequence[int]
    own_bytes: Sequence[float]
    copy_bytes: Sequence[float]
    partitions: Sequence[int]
    preferred: Sequence[bool]
    places: Sequence[Sequence[int]]
    used_bytes: Sequence[float]
    limit_bytes: Sequence[float]
    low_bytes: Sequence[float]
    high_bytes: Sequence[float]
    brokers: Sequence[int]
    racks: Sequence[int]
    others: dict[int, list[int]]
    in_rack_max: dict[int, int]
    racks_min: dict[int, int]
    leading: Sequence[int]
    led_elsewhere: Sequence[int]
    leading_max: int


def small_fleet(placement: Placement, held: Int64s, dirs: Int64s, band: Band, leading_max: int) -> SmallFleet:
    """held: the replicas that are searched, all where they were before. Places are indexes of `dirs`."""
    partitions = held // placement.slots
    brokers = placement.snapshot.log_dirs.brokers[dirs]
    home = np.searchsorted(dirs, placement.log_dirs_before.ravel()[held])
    copies = placement.partition_bytes[partitions]
    own = placement.replica_bytes.ravel()[held]
    used = placement.after_bytes()[dirs]
    limit = (placement.disk_limit * placement.total_bytes[dirs]).astype(np.int64)
    # the least that each disk may come to hold: what is searched may all leave it
    least = used - np.bincount(home, own, minlength=dirs.size).astype(np.int64)
    own_broker: Flags = brokers == brokers[home][:, None]
    before = placement.brokers_before[partitions]
    may: Flags = own_broker | placement.allowed.by_rule[:, brokers][placement.rules[partitions]]
    may &= own_broker | ~(before[:, :, None] == brokers).any(axis=1)
    may &= (limit - least >= copies[:, None]) | (np.arange(dirs.size) == home[:, None])
    distinct = np.unique(partitions)
    stood = placement.brokers_before[distinct]
    racks = np.where(stood < 0, NO_RACK, placement.racks[stood])
    searched = np.zeros(placement.brokers_before.size, np.bool_)
    searched[held] = True
    others = np.where(searched.reshape(placement.brokers_before.shape)[distinct], -1, stood)
    names = distinct.tolist()
    return SmallFleet(
        home=home.tolist(),
        own_bytes=own.tolist(),
        copy_bytes=copies.tolist(),
        partitions=partitions.tolist(),
        preferred=(held % placement.slots == 0).tolist(),
        places=[np.flatnonzero(row).tolist() for row in may],
        used_bytes=used.tolist(),
        limit_bytes=limit.tolist(),
        low_bytes=band.low_bytes[dirs].tolist(),
        high_bytes=band.high_bytes[dirs].tolist(),
        brokers=brokers.tolist(),
        racks=placement.racks.tolist(),
        others={name: row[row >= 0].tolist() for name, row in zip(names, others, strict=True)},
        in_rack_max=dict(zip(names, fullest_rack(racks).tolist(), strict=True)),
        racks_min=dict(zip(names, distinct_racks(racks).tolist(), strict=True)),
        leading=placement.leading.tolist(),
        led_elsewhere=(
            placement.leading
            - np.bincount(
                brokers[home[held % placement.slots == 0]], minlength=len(placement.snapshot.brokers)
            )
        ).tolist(),
        leading_max=leading_max,
    )
