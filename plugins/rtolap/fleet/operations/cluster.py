"""A cluster under care: plans that wait for a person's approval, and what is still under way."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from rtolap.base.clock import Clock
from rtolap.base.errors import DefinitionError, NotFound, Refused
from rtolap.fleet.isolation.registry import HostRegistry
from rtolap.fleet.lifecycle.states import BrokerEvent, legal
from rtolap.fleet.moves.records import PlanRecord
from rtolap.fleet.moves.requests import RequestKind
from rtolap.fleet.moves.states import MoveState, PlanState
from rtolap.fleet.moves.store import FleetStore
from rtolap.fleet.moves.submitting import MoverRequests
from rtolap.fleet.operations.brokers import FleetBrokers
from rtolap.fleet.operations.plans import check_approved, make_plan, submit_plan
from rtolap.fleet.planning import decisions
from rtolap.fleet.planning.decisions import Planner
from rtolap.fleet.planning.plan import PlanKind
from rtolap.fleet.planning.plan_file import plan_digest, plan_from, plan_json
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.rates import RateReader
from rtolap.kafka.administration.interface import FleetAdministration
from rtolap.metadata.store import MetadataStore
from rtolap.object_store.store import ObjectStore

_FOLDER = "fleet/plans"


@dataclass(frozen=True)
class OpenedFleet:
    """A cluster with the connections that its care takes.

    Attributes:
        plans: where plans wait for their approval, by digest.
        registry: whose placement rules every plan keeps to.
        rates: of this host's sources of brokers' metrics; None where it declares none.
    """

    administration: FleetAdministration
    metadata: MetadataStore
    plans: ObjectStore
    token: str
    clock: Clock
    registry: HostRegistry
    rates: RateReader | None = None

    @property
    def brokers(self) -> FleetBrokers:
        return FleetBrokers(
            self.administration, self.metadata, self.token, self.clock, self.registry.cluster_of
        )

    def plan(self, kind: str, broker: int | None, throttle_bytes_per_s: int) -> dict[str, Any]:
        """Make a plan and keep it for the others of its run. Returns what a person needs to decide. Raises
        Refused for the drain of a broker that by its life may not be drained."""
        planner = _planner(kind, broker)
        snapshot = collect_snapshot(self.administration, self.clock, self.rates)
        declared = self.registry.cluster_of(snapshot)
        plan = make_plan(planner, snapshot, declared, throttle_bytes_per_s=throttle_bytes_per_s)
        if broker is not None and len(plan):
            self._check_drained(broker)
        digest = plan_digest(plan)
        path = plan_path(digest)
        self.plans.write(path, plan_json(plan))
        return {
            "path": path,
            "digest": digest,
            "kind": str(plan.kind),
            "broker": broker,
            "why": list(plan.why),
            "placement": None if declared is None else declared.name,
            "partitions": len(plan),
            "between_brokers_bytes": int(plan.between_brokers_bytes),
            "between_disks_bytes": int(plan.between_disks_bytes),
            "expected_s": plan.copy_time.expected_s,
        }

    def submit(self, planned: Mapping[str, Any], by: str) -> str | None:
        """Hand the plan, as it was approved, to the mover. A repetition submits nothing more. Returns the id;
        None where nothing is to be moved.

        A drain is an operation on its broker: it is cordoned before anything moves.
        """
        plan = plan_from(self.plans.read(str(planned["path"])), str(planned["path"]))
        check_approved(plan, str(planned["digest"]))
        fleet_store = FleetStore(self.metadata, plan.cluster_id)
        submitted = _submitted(fleet_store, planned)
        if submitted is not None:
            return submitted
        reason = f"approved in Airflow: {planned['digest'][:12]}"
        if planned["kind"] == PlanKind.DRAIN:
            self.brokers.drain(int(planned["broker"]), plan, by, reason, str(planned["digest"]))
        elif len(plan):
            requests = MoverRequests(fleet_store, self.clock, self.token, by)
            submit_plan(
                *(plan, self.administration, self.clock, self.registry.cluster_of),
                lambda: nullcontext(requests),
                rate_bytes_per_s=plan.throttle_bytes_per_s,
                reason=reason,
            )
        return _submitted(fleet_store, planned)

    def _check_drained(self, broker: int) -> None:
        state = self.brokers.view(broker).state
        if not legal(state, BrokerEvent.DRAIN):
            raise Refused(
                f"broker {broker} may not be drained",
                found=f"it is {state}",
                action="see rtolap fleet brokers",
            )

    def cancel(self, plan_id: str, by: str, reason: str) -> str:
        """Cancel the plan that is carried out, and return the mover's answer. A plan that has ended, or is
        being cancelled, needs no more. Raises DefinitionError for an unknown plan."""
        fleet_store = self._store()
        state = self._record(fleet_store, plan_id).state
        if state in (PlanState.CANCELLING, PlanState.RELEASING, PlanState.ENDED):
            return f"plan {plan_id}: {state}"
        requests = MoverRequests(fleet_store, self.clock, self.token, by)
        try:
            return requests.ask(RequestKind.CANCEL, reason=reason, plan_id=plan_id).message
        except NotFound:  # the mover carries out one plan, and this one is known: it has ended meanwhile
            return f"plan {plan_id}: {PlanState.ENDED}"

    def running(self) -> list[str]:
        """Return what moves: the plan that is carried out, and partitions under any reassignment."""
        current = self._store().current()
        plans = [] if current is None else [f"plan {current.record.plan_id}"]
        return plans + [str(partition) for partition in sorted(self.administration.running_reassignments())]

    def ended(self, plan_id: str) -> dict[str, int] | None:
        """Return how the moves of a plan ended, by their states; None while it is carried out."""
        record = self._record(self._store(), plan_id)
        if record.state is not PlanState.ENDED:
            return None
        return {str(state): number for state, number in record.counts().items() if number}

    def finished(self, plan_id: str) -> dict[str, Any]:
        """Return what an ended plan has moved: its id, its moves that are done, and the bytes of their
        copies."""
        store = self._store()
        record = self._record(store, plan_id)
        moves = store.read_moves(plan_id, record.moves_digest)
        done = [move for number, move in enumerate(moves) if record.move_state(number) is MoveState.DONE]
        return {
            "plan": plan_id,
            "moves": len(done),
            "bytes": sum(move.size_bytes * len(move.coming()) for move in done),
            "by": record.by,
        }

    def _store(self) -> FleetStore:
        return FleetStore(self.metadata, self.administration.describe_cluster().cluster_id)

    def _record(self, store: FleetStore, plan_id: str) -> PlanRecord:
        stored = store.plan(plan_id)
        if stored is None:
            raise DefinitionError(f"there is no plan {plan_id}")
        return stored.record

    def under_replicated(self) -> list[str]:
        """Return the partitions with a replica that is not in sync, as topic:number."""
        return [
            f"{topic}:{partition.number}"
            for topic, described in sorted(self.administration.describe_topics().items())
            for partition in described.partitions
            if set(partition.in_sync) < set(partition.replicas)
        ]


def plan_path(digest: str) -> str:
    """Return where the plan of this digest waits for its approval."""
    return f"{_FOLDER}/{digest}.json"


def _submitted(fleet_store: FleetStore, planned: Mapping[str, Any]) -> str | None:
    found = [record.plan_id for record in fleet_store.plans() if record.digest == planned["digest"]]
    return found[-1] if found else None


def _planner(kind: str, broker: int | None) -> Planner:
    if kind == PlanKind.DISKS:
        return decisions.disks()
    if kind == PlanKind.RACK:
        return decisions.RACKS
    if kind == PlanKind.DRAIN and broker is not None:
        return decisions.drain([broker])
    raise DefinitionError(
        "the kind of plan is unknown", expected="disks, rack, or drain with a broker", found=kind
    )
