"""A planner: a function of this package, with the arguments of one decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rtolap.fleet.planning.plan import Limits, Plan
from rtolap.fleet.snapshot.model import FleetSnapshot


class Decision(Protocol):
    def __call__(self, snapshot: FleetSnapshot, *, limits: Limits) -> Plan:
        """Return the plan, a function of these alone. Raises what the decision is refused for."""


@dataclass(frozen=True)
class Planner:
    """A decision with its arguments, see `decisions`.

    Attributes:
        plan: makes the plan.
        moves_replicas: False for a decision about leaders only, which no placement rule concerns.
    """

    plan: Decision
    moves_replicas: bool = True
