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
    """The replicas that a search may move, and the disks between which it moves them. Columns are lists.

    Attributes:
        home: Present place, by replica.
        own_bytes: Size, by replica.
        copy_bytes: Size of a new copy, by replica.
        partitions: Partition, by replica.
        preferred: The replica is the preferred leader.
        places: Places that no rule forbids whatever else moves, by replica.
        used_bytes: Bytes used now, by place.
        limit_bytes: Bytes that the place may hold.
        low_bytes: Lower end of the band, by place.
        high_bytes: Upper end of the band, by place.
        brokers: Broker, by place.
        racks: Rack, by broker.
        others: Brokers of replicas that are not searched, by partition.
        in_rack_max: Replicas that a rack may hold, by partition.
        racks_min: Racks that the partition stands in at least.
        leading: Partitions that a broker leads by preference.
        led_elsewhere: Those of them that are not searched.
        leading_max: Partitions that a broker may lead by preference.
    """

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


def small_fleet(
    placement: Placement, searched_replicas: Int64s, dirs: Int64s, band: Band, leading_max: int
) -> SmallFleet:
    """Return the small fleet of these replicas, none of which has moved yet. Places are indexes of `dirs`."""
    partitions = searched_replicas // placement.slots
    brokers = placement.snapshot.log_dirs.brokers[dirs]
    home = np.searchsorted(dirs, placement.log_dirs_before.ravel()[searched_replicas])
    copies = placement.partition_bytes[partitions]
    own = placement.replica_bytes.ravel()[searched_replicas]
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
    searched[searched_replicas] = True
    others = np.where(searched.reshape(placement.brokers_before.shape)[distinct], -1, stood)
    names = distinct.tolist()
    return SmallFleet(
        home=home.tolist(),
        own_bytes=own.tolist(),
        copy_bytes=copies.tolist(),
        partitions=partitions.tolist(),
        preferred=(searched_replicas % placement.slots == 0).tolist(),
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
                brokers[home[searched_replicas % placement.slots == 0]],
                minlength=len(placement.snapshot.brokers),
            )
        ).tolist(),
        leading_max=leading_max,
    )
