"""The interface of a planner: what a plan is made by, with the arguments of one decision."""

from __future__ import annotations

from typing import ClassVar, Protocol

from rtolap.fleet.planning.plan import Limits, Plan, PlanKind
from rtolap.fleet.snapshot.model import FleetSnapshot


class Planner(Protocol):
    """A decision with its arguments, as `fleet.planning.planners` registers it.

    Attributes:
        kind: the decision, which a plan carries with it.
        moves_replicas: False for a decision about leaders only, which no placement rule concerns.
    """

    kind: ClassVar[PlanKind]
    moves_replicas: ClassVar[bool]

    def plan(self, snapshot: FleetSnapshot, limits: Limits) -> Plan:
        """Return the plan, a function of these alone. Raises what the decision is refused for."""
        ...
