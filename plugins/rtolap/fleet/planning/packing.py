"""Places for all replicas that must go, where the idlest disk for each in turn leaves the last without one.

All of them are placed at once, above the limits too, and moved and exchanged (`exchanges`) until no disk is
above its limit. What stays where it is takes no part.
"""

from __future__ import annotations

import numpy as np

from rtolap.fleet.planning.exchanges import Exchanges
from rtolap.fleet.planning.placement import NO_RACK, Placement, distinct_racks, fullest_rack
from rtolap.fleet.planning.small_fleet import CELLS_MAX, SmallFleet
from rtolap.fleet.snapshot.model import Flags, Int64s

_RUNS = 4
_WORTH = 1000.0
_NOWHERE = 1 << 60


def pack(placement: Placement, positions: Int64s, barred: Flags, *, beside: bool = False) -> bool:
    """Move all of these replicas, none of which has moved, to disks with room. False where no such placement
    was found, or there are too many to look; nothing has moved then.

    barred: directories that get nothing. beside: a replica may go to another disk of its broker.
    """
    dirs = np.flatnonzero(placement.takes & ~barred)
    if not dirs.size or positions.size * dirs.size > CELLS_MAX:
        return False
    fleet, may = _fleet(placement, positions, dirs, beside=beside)
    if not may.any(axis=1).all():
        return False
    at = _beginning(fleet, may)
    if at is None:
        return False
    exchanges = Exchanges(fleet, _WORTH, at)
    for seed in range(_RUNS):
        if exchanges.best_outside < 1 and exchanges.keeps_rules():
            break
        exchanges.run(seed, until_inside=True)
    if exchanges.best_outside >= 1 or not exchanges.keeps_rules():
        return False
    for position, place in zip(positions.tolist(), exchanges.best, strict=True):
        placement.move(np.array([position]), int(dirs[place]))
    return True


def _beginning(fleet: SmallFleet, may: Flags) -> list[int] | None:
    """Return a place for each, the largest first, in the rack that has fewest of its partition, where most is
    free. None where a partition has more replicas than brokers that may take them."""
    free = np.array(fleet.high_bytes, np.float64) - np.array(fleet.used_bytes, np.float64)
    brokers = np.array(fleet.brokers, np.int64)
    racks = np.array(fleet.racks, np.int64)
    at = np.full(len(may), -1, np.int64)
    standing = {partition: list(others) for partition, others in fleet.others.items()}
    sizes = np.array(fleet.copy_bytes, np.float64)
    for row in np.lexsort((np.arange(sizes.size), -sizes, may.sum(axis=1))).tolist():
        others = standing[fleet.partitions[row]]
        open_places = np.flatnonzero(may[row] & ~np.isin(brokers, others))
        if not open_places.size:
            return None
        shared = np.array([(racks[others] == racks[brokers[place]]).sum() for place in open_places])
        place = int(open_places[np.lexsort((-free[open_places], shared))[0]])
        at[row] = place
        free[place] -= sizes[row]
        others.append(int(brokers[place]))
    return at.tolist()


def _fleet(
    placement: Placement, positions: Int64s, dirs: Int64s, *, beside: bool
) -> tuple[SmallFleet, Flags]:
    """Return the replicas with the disks that may take them: they leave none of these, and weigh on one only
    when they come to it."""
    partitions = positions // placement.slots
    brokers = placement.snapshot.log_dirs.brokers[dirs]
    own = placement.brokers.ravel()[positions]
    own_broker: Flags = brokers == own[:, None]
    before = placement.brokers_before[partitions]
    may: Flags = placement.allowed.by_rule[:, brokers][placement.rules[partitions]]
    may &= ~(before[:, :, None] == brokers).any(axis=1)
    if beside:
        may |= own_broker
    copies = placement.partition_bytes[partitions]
    limit = (placement.disk_limit * placement.total_bytes[dirs]).astype(np.int64)
    used = placement.used_bytes[dirs] + placement.incoming_bytes[dirs]
    may &= limit - used >= copies[:, None]
    distinct = np.unique(partitions)
    stood = placement.brokers_before[distinct]
    racks = np.where(stood < 0, NO_RACK, placement.racks[stood])
    searched = np.zeros(placement.brokers_before.size, np.bool_)
    searched[positions] = True
    others = np.where(searched.reshape(placement.brokers_before.shape)[distinct], -1, stood)
    names = distinct.tolist()
    count = len(placement.snapshot.brokers)
    fleet = SmallFleet(
        home=[_NOWHERE] * positions.size,
        own_bytes=[0.0] * positions.size,
        copy_bytes=copies.tolist(),
        partitions=partitions.tolist(),
        preferred=[False] * positions.size,
        places=[np.flatnonzero(row).tolist() for row in may],
        used_bytes=used.tolist(),
        limit_bytes=[float("inf")] * dirs.size,
        low_bytes=[0.0] * dirs.size,
        high_bytes=np.maximum(limit, used).tolist(),
        brokers=brokers.tolist(),
        racks=placement.racks.tolist(),
        others={name: row[row >= 0].tolist() for name, row in zip(names, others, strict=True)},
        in_rack_max=dict(zip(names, fullest_rack(racks).tolist(), strict=True)),
        racks_min=dict(zip(names, distinct_racks(racks).tolist(), strict=True)),
        leading=[0] * count,
        led_elsewhere=[0] * count,
        leading_max=positions.size + 1,
    )
    return fleet, may
