"""The registered planners, by the decision that each makes.

A new planner is a class beside its function, and a line here.
"""

from __future__ import annotations

from collections.abc import Mapping

from rtolap.fleet.planning.add_brokers import AdditionPlanner
from rtolap.fleet.planning.disks import DiskPlanner
from rtolap.fleet.planning.drain import DiskRemovalPlanner, DrainPlanner
from rtolap.fleet.planning.factor import FactorPlanner
from rtolap.fleet.planning.leaders import LeaderPlanner
from rtolap.fleet.planning.leaders_by_load import LeaderLoadPlanner
from rtolap.fleet.planning.plan import PlanKind
from rtolap.fleet.planning.planner import Planner
from rtolap.fleet.planning.repairs import PlacementPlanner, RackPlanner

PLANNERS: Mapping[PlanKind, type[Planner]] = {
    planner.kind: planner
    for planner in (
        *(DiskPlanner, LeaderPlanner, LeaderLoadPlanner, RackPlanner, PlacementPlanner),
        *(DrainPlanner, DiskRemovalPlanner, AdditionPlanner, FactorPlanner),
    )
}
