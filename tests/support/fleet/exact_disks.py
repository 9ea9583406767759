"""The fewest bytes that bring every disk into the band, by an exact solver: for fleets of some tens of
replicas.

A yes or no for each replica and disk (mixed-integer programming by HiGHS), under the rules that plans keep:
a partition once on a broker, and not where another of its replicas leaves; no rack holding more of it than
the fullest did; room for all that comes, whatever leaves or with what leaves counted; no broker leading more
by preference than the one that leads most. Factors are at most 3: with more, the rule on racks is not linear.
"""

from __future__ import annotations

import numpy as np
from rtolap.fleet.planning.levels import Band
from rtolap.fleet.planning.placement import Placement, fullest_rack
from rtolap.fleet.snapshot.model import Flags, Int32s, Int64s
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix

NODES_MAX = 5_000  # and no time that counts, so that a slow machine finds the same
TIME_LIMIT_S = 300.0
GAP = 0.01


def fewest_bytes(placement: Placement, band: Band, *, leaving_is_room: bool = False) -> int | None:
    """Return a bound at most `GAP` below the optimum; None where no placement is within the band. With
    `leaving_is_room`, a disk must only have room in the end, in whatever order. Raises TimeoutError where
    the solver does not finish."""
    dirs = np.flatnonzero(placement.takes)
    brokers = placement.snapshot.log_dirs.brokers[dirs]
    flat = placement.log_dirs_before.ravel()
    positions = placement.positions[np.isin(flat[placement.positions], dirs)]
    positions = positions[placement.movable(positions)]
    partitions = positions // placement.slots
    assert int(placement.factors.max(initial=1)) <= 3
    home = np.searchsorted(dirs, flat[positions])
    sizes = placement.partition_bytes[partitions].astype(float)
    own = placement.replica_bytes.ravel()[positions].astype(float)
    count, places = positions.size, dirs.size
    rows: list[tuple[dict[int, float], float, float]] = []
    for replica in range(count):
        rows.append(({replica * places + d: 1.0 for d in range(places)}, 1.0, 1.0))
    most = fullest_rack(np.where(placement.brokers_before < 0, -1, placement.racks[placement.brokers_before]))
    standing = set(positions.tolist())
    for partition in np.unique(partitions).tolist():
        mine = np.flatnonzero(partitions == partition)
        others = [
            int(broker)
            for slot, broker in enumerate(placement.brokers_before[partition])
            if broker >= 0 and partition * placement.slots + slot not in standing
        ]
        for broker in np.unique(brokers).tolist():
            terms = {int(r) * places + int(d): 1.0 for r in mine for d in np.flatnonzero(brokers == broker)}
            rows.append((terms, 0.0, float(broker not in others)))
        for rack in np.unique(placement.racks[brokers]).tolist():
            there = np.flatnonzero(placement.racks[brokers] == rack)
            terms = {int(r) * places + int(d): 1.0 for r in mine for d in there}
            taken = sum(placement.racks[b] == rack for b in others)
            rows.append((terms, 0.0, float(max(most[partition] - taken, 0))))
    used, incoming = placement.after_bytes(), placement.incoming_bytes
    limit = placement.disk_limit * placement.total_bytes
    leads = positions % placement.slots == 0
    for place, row in enumerate(dirs.tolist()):
        leaving = float(own[home == place].sum())
        held = {r * places + place: own[r] if home[r] == place else sizes[r] for r in range(count)}
        rest = float(used[row]) - leaving
        rows.append((held, float(band.low_bytes[row]) - rest, float(band.high_bytes[row]) - rest))
        coming = {r * places + place: sizes[r] for r in range(count) if home[r] != place}
        room = limit[row] - placement.used_bytes[row] - incoming[row]
        if leaving_is_room and coming:
            rows.append((held, 0.0, max(float(limit[row]), float(used[row])) - rest))
        else:
            rows.append((coming, 0.0, max(float(room), 0.0)))
    led_max = int(placement.leading.max(initial=0))
    for broker in np.unique(brokers).tolist():
        there = np.flatnonzero(brokers == broker)
        terms = {int(r) * places + int(d): 1.0 for r in np.flatnonzero(leads) for d in there}
        fixed = int(placement.leading[broker]) - int((leads & (brokers[home] == broker)).sum())
        rows.append((terms, 0.0, float(led_max - fixed)))
    scale = 1.0 / max(sizes.max(initial=1.0), 1.0)
    cost = np.repeat(sizes * scale, places)
    cost[np.arange(count) * places + home] = 0.0
    matrix = lil_matrix((len(rows), count * places))
    low, high = np.zeros(len(rows)), np.zeros(len(rows))
    for at, (terms, least, largest) in enumerate(rows):
        factor = scale if any(value > 1.0 for value in terms.values()) else 1.0
        for column, value in terms.items():
            matrix[at, column] = value * factor
        low[at], high[at] = least * factor, largest * factor
    found = milp(
        cost,
        constraints=LinearConstraint(matrix.tocsr(), low, high),
        integrality=np.ones(cost.size),
        bounds=Bounds(0, np.where(_barred(placement, partitions, brokers, home), 0, 1).ravel()),
        options={"time_limit": TIME_LIMIT_S, "node_limit": NODES_MAX, "mip_rel_gap": GAP},
    )
    if found.status == 2:
        return None
    if found.status != 0:
        raise TimeoutError(found.message)
    fewest: int = round(float(found.mip_dual_bound) / scale)
    return fewest


def _barred(placement: Placement, partitions: Int64s, brokers: Int32s, home: Int64s) -> Flags:
    """Return, by replica and disk, those of other brokers that held the partition before."""
    before = placement.brokers_before[partitions]
    held = (before[:, :, None] == brokers).any(axis=1)
    barred: Flags = held & (brokers != brokers[home][:, None])
    return barred
