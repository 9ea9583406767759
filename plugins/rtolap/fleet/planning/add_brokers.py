"""Brokers added: they get their share, and nothing moves between the others.

Disks of the new brokers are filled to the fleet's mean; what comes to them is skimmed from the fullest disks
of the others, down to one level.
"""

from __future__ import annotations

import numpy as np

from rtolap.base.errors import ImpossiblePlan
from rtolap.fleet.planning.levels import level_above
from rtolap.fleet.planning.placement import Placement
from rtolap.fleet.planning.plan import Bounds, Limits, Plan, PlanKind, plan_of, refuse_missing
from rtolap.fleet.planning.refusals import broker_rows
from rtolap.fleet.planning.transfers import Transfers
from rtolap.fleet.snapshot.model import FleetSnapshot, Floats


def plan_add(snapshot: FleetSnapshot, broker_ids: list[int], *, limits: Limits = Limits()) -> Plan:
    """Plan the filling of new brokers. Raises NotFound for an unknown broker, and ImpossiblePlan where it has
    no usable disk or no broker can give data."""
    refuse_missing(snapshot, PlanKind.ADD)
    new = broker_rows(snapshot, broker_ids)
    placement = Placement(snapshot, disk_limit=limits.disk_limit, allowed=limits.allowed)
    brokers = snapshot.log_dirs.brokers
    targets = np.flatnonzero(placement.takes & new[brokers])
    silent = sorted(set(broker_ids) - set(snapshot.brokers.ids[brokers[targets]].tolist()))
    if silent:
        raise ImpossiblePlan(
            "brokers to be added have no disk that takes replicas",
            expected="a broker that serves, with a disk online, not cordoned and of known size",
            found=silent,
        )
    sources = np.flatnonzero(placement.takes & ~new[brokers])
    both = np.concatenate((sources, targets))
    total, before = placement.total_bytes, placement.after_bytes()
    mean = float(before[both].sum(dtype=np.float64)) / float(total[both].sum(dtype=np.float64))
    up = np.floor(mean * total).astype(np.int64)
    missing = int(np.maximum(up[targets] - before[targets], 0).sum())
    if sources.size:
        down = np.zeros(len(total), np.int64)
        down[sources] = level_above(before[sources], total[sources], missing)
        transfers = Transfers(placement)
        transfers.run(sources, down, targets, up)
        # Where racks held the fullest back, the others give down to the mean.
        transfers.run(sources, up, targets, up)
    after = placement.after_bytes()
    named = ", ".join(str(broker) for broker in sorted(set(broker_ids)))
    left = int(np.maximum(up[targets] - after[targets], 0).sum())
    why = [
        f"Disks of broker {named} are {_range(before[targets] / total[targets])} full,"
        f" all together {mean:.1%}; afterwards {_range(after[targets] / total[targets])}.",
        "Nothing moves between the other brokers.",
    ]
    return plan_of(placement, PlanKind.ADD, [("brokers", named)], why, Bounds(missing, left), limits=limits)


def _range(shares: Floats) -> str:
    return f"{shares.min():.1%} to {shares.max():.1%}"
