"""The least that the busiest broker can send as leader, by an exact solver, for small fleets.

A yes or no for each partition and replica that may lead (mixed-integer programming by HiGHS); how many
partitions a broker leads is not bounded.
"""

from __future__ import annotations

import numpy as np
from rtolap.fleet.planning.leaders import eligible_replicas
from rtolap.fleet.planning.placement import Placement
from rtolap.fleet.snapshot.model import FleetSnapshot, Floats
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix

TIME_LIMIT_S = 5.0
GAP = 0.005


def least_busiest_load(snapshot: FleetSnapshot, loads: Floats) -> float:
    """Return a bound at most `GAP` below the optimum. Raises TimeoutError where the solver does not finish.

    Partitions of which no replica can lead, and those under a running move, count where they are now
    preferred."""
    placement = Placement(snapshot)
    eligible = eligible_replicas(placement)
    able = np.flatnonzero(placement.able)
    kept = np.zeros(len(snapshot.brokers))
    choices: list[tuple[int, int]] = []
    for partition in range(len(loads)):
        slots = np.flatnonzero(eligible[partition])
        if slots.size:
            choices += [(partition, int(placement.brokers[partition, slot])) for slot in slots]
        elif placement.factors[partition]:
            kept[placement.brokers[partition, 0]] += loads[partition]
    if not choices:
        return float(kept[able].max(initial=0.0))
    scale = max(float(loads.max()), 1.0)
    partitions = sorted({partition for partition, _ in choices})
    rows = lil_matrix((len(partitions) + able.size, len(choices) + 1))
    for column, (partition, broker) in enumerate(choices):
        rows[partitions.index(partition), column] = 1.0
        rows[len(partitions) + int(np.searchsorted(able, broker)), column] = loads[partition] / scale
    rows[len(partitions) :, len(choices)] = -1.0
    one = np.ones(len(partitions))
    least = np.concatenate((one, np.full(able.size, -np.inf)))
    most = np.concatenate((one, -kept[able] / scale))
    solved = milp(
        np.concatenate((np.zeros(len(choices)), [1.0])),
        constraints=LinearConstraint(rows.tocsr(), least, most),
        integrality=np.concatenate((np.ones(len(choices)), [0.0])),
        bounds=Bounds(0, np.concatenate((np.ones(len(choices)), [np.inf]))),
        options={"time_limit": TIME_LIMIT_S, "mip_rel_gap": GAP},
    )
    if solved.status != 0:
        raise TimeoutError(solved.message)
    return float(solved.mip_dual_bound) * scale
