"""A small fleet, improved replica by replica: what is still outside the band, then how many bytes move.

Where disks hold a few large replicas, it matters which go, and which go together; they are looked for by
simulated annealing (`anneal`), again and again until the plan is close to the least, or so many times, and
more while disks stay outside. What was planned so far is where it begins, and what it ends with if nothing
better is found. A byte that comes into the band is worth `_WORTH` moved ones: for less nothing moves.
"""

from __future__ import annotations

import numpy as np

from rtolap.fleet.planning.anneal import Annealing, SmallFleet
from rtolap.fleet.planning.levels import Band
from rtolap.fleet.planning.placement import NO_RACK, Placement
from rtolap.fleet.planning.rules import distinct_racks, fullest_rack
from rtolap.fleet.snapshot.model import Flags, Int64s

CELLS_MAX = 20_000
RUNS = 12
_MORE_RUNS = 3
_WORTH = 1000.0
_CLOSE = 1.02


def improve(
    placement: Placement, dirs: Int64s, band: Band, least_bytes: int, leading_max: int, *, runs: int = RUNS
) -> None:
    """Leave large fleets as they are: in them whole replicas are small beside the band. least_bytes: that any
    plan moves. leading_max: no broker gets to lead more partitions. runs: at most; with 0 every fleet is
    left, with others more while something stays outside."""
    held = placement.positions[np.isin(placement.log_dirs_before.ravel()[placement.positions], dirs)]
    held = held[placement.movable(held)]
    if not runs or not held.size or held.size * dirs.size > CELLS_MAX:
        return
    place_of = np.full(len(placement.total_bytes), -1)
    place_of[dirs] = np.arange(dirs.size)
    at = place_of[placement.log_dirs.ravel()[held]]
    for position in held[at != place_of[placement.log_dirs_before.ravel()[held]]].tolist():
        placement.restore(position)
    annealing = Annealing(small_fleet(placement, held, dirs, band, leading_max), _WORTH, at.tolist())
    for seed in range(runs * _MORE_RUNS):
        close = annealing.best_cost <= _CLOSE * least_bytes
        if close or (seed >= runs and annealing.best_outside < 1):
            break
        annealing.run(seed)
    for position, home, place in zip(held.tolist(), annealing.fleet.home, annealing.best, strict=True):
        if place != home:
            placement.move(np.array([position]), int(dirs[place]))


def small_fleet(placement: Placement, held: Int64s, dirs: Int64s, band: Band, leading_max: int) -> SmallFleet:
    """held: the replicas that are searched, all where they were before. Places are indexes of `dirs`."""
    partitions = held // placement.slots
    brokers = placement.snapshot.log_dirs.brokers[dirs]
    home = np.searchsorted(dirs, placement.log_dirs_before.ravel()[held])
    copies, room = placement.partition_bytes[partitions], placement.room_bytes()[dirs]
    own_broker: Flags = brokers == brokers[home][:, None]
    before = placement.brokers_before[partitions]
    may: Flags = own_broker | placement.allowed.by_rule[:, brokers][placement.rules[partitions]]
    may &= own_broker | ~(before[:, :, None] == brokers).any(axis=1)
    may &= (room >= copies[:, None]) | (np.arange(dirs.size) == home[:, None])
    distinct = np.unique(partitions)
    stood = placement.brokers_before[distinct]
    racks = np.where(stood < 0, NO_RACK, placement.racks[stood])
    searched = np.zeros(placement.brokers_before.size, np.bool_)
    searched[held] = True
    others = np.where(searched.reshape(placement.brokers_before.shape)[distinct], -1, stood)
    names = distinct.tolist()
    return SmallFleet(
        home=home.tolist(),
        own_bytes=placement.replica_bytes.ravel()[held].tolist(),
        copy_bytes=copies.tolist(),
        partitions=partitions.tolist(),
        preferred=(held % placement.slots == 0).tolist(),
        places=[np.flatnonzero(row).tolist() for row in may],
        used_bytes=placement.after_bytes()[dirs].tolist(),
        room_bytes=room.tolist(),
        low_bytes=band.low_bytes[dirs].tolist(),
        high_bytes=band.high_bytes[dirs].tolist(),
        brokers=brokers.tolist(),
        racks=placement.racks.tolist(),
        others={name: row[row >= 0].tolist() for name, row in zip(names, others, strict=True)},
        in_rack_max=dict(zip(names, fullest_rack(racks).tolist(), strict=True)),
        racks_min=dict(zip(names, distinct_racks(racks).tolist(), strict=True)),
        leading=placement.leading.tolist(),
        leading_max=leading_max,
    )
