"""Drains of brokers by the mover of their cluster.

A drain's id stands in the reason of its request, so that one that was submitted is known again: by a process
that comes after a crash, too. A plan that a person approved is submitted as it is, or refused where the
cluster has changed since; without one, a plan is made of the cluster as it is. Either keeps to the placement
rules of the registry.
"""

from __future__ import annotations

from rtolap.base.clock import Clock
from rtolap.base.errors import NotFound, Unavailable
from rtolap.fleet.isolation.registry import RegisteredOf, check_submittable
from rtolap.fleet.moves.requests import MoveRequest, RequestKind
from rtolap.fleet.moves.store import FleetStore
from rtolap.fleet.moves.submitting import MoverRequests
from rtolap.fleet.operations.plans import make_plan
from rtolap.fleet.planning import decisions
from rtolap.fleet.planning.plan import THROTTLE_BYTES_PER_S, Plan
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.kafka.administration.interface import FleetAdministration


class PlannedDrains:
    """Implements `lifecycle.actions.Drains`.

    `approved` is the plan that a person has approved. `registered_of` returns the registry's cluster of a
    snapshot.
    """

    def __init__(
        self,
        administration: FleetAdministration,
        fleet_store: FleetStore,
        clock: Clock,
        token: str,
        *,
        registered_of: RegisteredOf,
        approved: Plan | None = None,
        throttle_bytes_per_s: int = THROTTLE_BYTES_PER_S,
    ) -> None:
        self._administration = administration
        self._fleet_store = fleet_store
        self._clock = clock
        self._token = token
        self._approved = approved
        self._registered_of = registered_of
        self._throttle_bytes_per_s = throttle_bytes_per_s

    def submit(self, broker: int, drain_id: str, by: str, reason: str) -> None:
        """Submit a drain. Raises Unavailable where no mover answers, Refused where it carries out another
        plan."""
        if self._submitted(drain_id) is not None:
            return
        snapshot = collect_snapshot(self._administration, self._clock)
        registered = self._registered_of(snapshot)
        plan = self._approved
        if plan is None:
            rate = self._throttle_bytes_per_s
            plan = make_plan(
                decisions.drain([broker]),
                snapshot,
                registered,
                throttle_bytes_per_s=rate,
            )
        else:
            check_submittable(plan, snapshot, registered)
        if len(plan):
            rate = plan.throttle_bytes_per_s
            self._requests(by).submit(plan, rate_bytes_per_s=rate, reason=f"{reason} {_mark(drain_id)}")

    def cancel(self, broker: int, drain_id: str, by: str, reason: str) -> None:
        request = self._submitted(drain_id)
        if request is None:
            return
        try:
            self._requests(by).ask(RequestKind.CANCEL, reason=reason, plan_id=request.plan_id)
        except NotFound:
            return  # it has ended

    def _submitted(self, drain_id: str) -> MoveRequest | None:
        """Return the request that was submitted. Raises Unavailable where somebody still waits for its
        answer."""
        for request in self._fleet_store.requests():
            if request.kind is not RequestKind.SUBMIT or not request.reason.endswith(_mark(drain_id)):
                continue
            if request.answer is None:
                if not self._fleet_store.is_waited_for(request.request_id):
                    continue  # its sender is gone, and no mover takes it any more
                raise Unavailable(
                    f"no mover has answered request {request.request_id}",
                    action="check that `rtolap fleet serve` runs for this cluster",
                )
            if not request.answer.code:
                return request
        return None

    def _requests(self, by: str) -> MoverRequests:
        return MoverRequests(self._fleet_store, self._clock, self._token, by)


def _mark(drain_id: str) -> str:
    return f"[drain {drain_id}]"
