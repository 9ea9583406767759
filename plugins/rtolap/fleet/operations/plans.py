"""Plans as people handle them: made, approved, checked, submitted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from rtolap.base.clock import Clock
from rtolap.base.errors import PlanChanged
from rtolap.fleet.isolation.registry import RegisteredCluster, RegisteredOf, check_submittable
from rtolap.fleet.moves.records import Hours
from rtolap.fleet.moves.submitting import MoverRequests
from rtolap.fleet.planning.decisions import Planner
from rtolap.fleet.planning.placement import DISK_LIMIT
from rtolap.fleet.planning.plan import THROTTLE_BYTES_PER_S, Limits, Plan
from rtolap.fleet.planning.plan_file import plan_digest
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.model import FleetSnapshot
from rtolap.kafka.administration.interface import FleetAdministration

_DIGEST_CHARACTERS_MIN = 8

OpenRequests = Callable[[], AbstractContextManager[MoverRequests]]
"""Opens requests to the mover of a cluster, once nothing speaks against the plan."""


def make_plan(
    planner: Planner,
    snapshot: FleetSnapshot,
    registered: RegisteredCluster | None,
    *,
    disk_limit: float = DISK_LIMIT,
    throttle_bytes_per_s: int = THROTTLE_BYTES_PER_S,
) -> Plan:
    """Return the plan, which keeps to the placement rules of the registry. Raises as the planner, and Refused
    for another cluster's snapshot.

    `registered`: None where no registry declares the cluster."""
    allowed = None
    if registered is not None and planner.moves_replicas:
        allowed = registered.allowed_brokers(snapshot)
    return planner.plan(snapshot, limits=Limits(disk_limit, throttle_bytes_per_s, allowed))


def check_approved(
    plan: Plan, digest: str, message: str = "the plan is not the one that was approved"
) -> None:
    """Raise PlanChanged where `digest`, or its beginning, is not the plan's."""
    found = plan_digest(plan)
    if len(digest) < _DIGEST_CHARACTERS_MIN or not found.startswith(digest):
        raise PlanChanged(message, expected=digest, found=found)


def submit_plan(
    plan: Plan,
    administration: FleetAdministration,
    clock: Clock,
    registered_of: RegisteredOf,
    open_requests: OpenRequests,
    *,
    rate_bytes_per_s: int | None,
    hours: Hours | None = None,
    reason: str = "",
) -> str:
    """Hold a plan against its cluster and the registry as both are now, and submit it; return its id.

    Raises what `check_submittable` and `MoverRequests.submit` do.
    """
    snapshot = collect_snapshot(administration, clock)
    check_submittable(plan, snapshot, registered_of(snapshot))
    with open_requests() as requests:
        return requests.submit(plan, rate_bytes_per_s=rate_bytes_per_s, hours=hours, reason=reason)
