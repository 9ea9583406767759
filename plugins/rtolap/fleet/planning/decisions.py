"""The decisions that plans are made for, each as a planner with its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from rtolap.fleet.planning.add_brokers import plan_add
from rtolap.fleet.planning.disks import TOLERANCE, plan_disks
from rtolap.fleet.planning.drain import plan_drain, plan_remove_disk
from rtolap.fleet.planning.factor import plan_factor
from rtolap.fleet.planning.leaders import plan_leaders
from rtolap.fleet.planning.leaders_by_load import plan_leaders_by_load
from rtolap.fleet.planning.plan import Limits, Plan
from rtolap.fleet.planning.repairs import plan_placement, plan_racks
from rtolap.fleet.snapshot.model import FleetSnapshot


class Decision(Protocol):
    def __call__(self, snapshot: FleetSnapshot, *, limits: Limits) -> Plan:
        """Return the plan, a function of these alone. Raises what the decision is refused for."""


@dataclass(frozen=True)
class Planner:
    """A decision with its arguments.

    Attributes:
        plan: makes the plan.
        moves_replicas: False for a decision about leaders only, which no placement rule concerns.
    """

    plan: Decision
    moves_replicas: bool = True


RACKS = Planner(plan_racks)
PLACEMENT = Planner(plan_placement)
LEADERS = Planner(plan_leaders, moves_replicas=False)
LEADERS_BY_LOAD = Planner(plan_leaders_by_load, moves_replicas=False)


def disks(tolerance: float = TOLERANCE) -> Planner:
    return Planner(partial(plan_disks, tolerance=tolerance))


def drain(brokers: list[int]) -> Planner:
    return Planner(partial(plan_drain, broker_ids=brokers))


def remove_disk(broker: int, path: str) -> Planner:
    return Planner(partial(plan_remove_disk, broker_id=broker, path=path))


def add(brokers: list[int]) -> Planner:
    return Planner(partial(plan_add, broker_ids=brokers))


def factor(topics: Sequence[str], replicas: int) -> Planner:
    return Planner(partial(plan_factor, topics=topics, factor=replicas))
