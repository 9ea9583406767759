"""Assignment of partitions to consumers: pure functions of a snapshot, chosen by name.

Both assigners are published by Apache Kylin; `rebalance`, for a cube that runs, is not. The docstring of each
gives its algorithm. Whatever they answer is
validated (`validate_plan`) before it is committed: the original loses partitions at times.
"""

from __future__ import annotations

from rtolap.coordinator.assigners.default import assign as assign_default
from rtolap.coordinator.assigners.plan import Assigner, Plan, ReplicaSetLoad, validate_plan
from rtolap.coordinator.assigners.rebalance import rebalance
from rtolap.coordinator.assigners.round_robin import assign as assign_round_robin

ASSIGNERS: dict[str, Assigner] = {"default": assign_default, "round_robin": assign_round_robin}
DEFAULT_ASSIGNER = "default"

__all__ = [
    "ASSIGNERS",
    "DEFAULT_ASSIGNER",
    "Assigner",
    "Plan",
    "ReplicaSetLoad",
    "rebalance",
    "validate_plan",
]
