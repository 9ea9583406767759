"""FleetHook: the care of one Kafka cluster, for operators and sensors.

Not to be imported while DAGs are parsed: it loads numpy and the clients of Kafka and ZooKeeper. The cluster
is reached by its connection, as by `hooks.kafka`; ZooKeeper, the token, the object store and the registry are
this host's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rtolap.airflow.hooks.fleet_brokers import FleetBrokers
from rtolap.airflow.hooks.kafka import KafkaClusterHook
from rtolap.base.clock import Clock, SystemClock
from rtolap.base.errors import DefinitionError, PlanChanged, Refused
from rtolap.base.settings import Settings
from rtolap.fleet.isolation.registry import HostRegistry, check_submittable
from rtolap.fleet.lifecycle.states import BrokerEvent, legal
from rtolap.fleet.monitoring.sources import read_sources
from rtolap.fleet.monitoring.topic_rates import SourceRates
from rtolap.fleet.moves.kept import KeptFleet
from rtolap.fleet.moves.states import PlanState
from rtolap.fleet.moves.submitting import MoverRequests
from rtolap.fleet.planning.disks import plan_disks
from rtolap.fleet.planning.drain import plan_drain
from rtolap.fleet.planning.plan import Kind, Limits, Plan
from rtolap.fleet.planning.plan_file import plan_digest, plan_from, plan_json
from rtolap.fleet.planning.repairs import plan_racks
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.model import Snapshot
from rtolap.fleet.snapshot.rates import RateReader
from rtolap.kafka.administration.client import KafkaAdministration
from rtolap.kafka.administration.interface import FleetAdministration
from rtolap.metadata.cluster_store import open_cluster_store
from rtolap.metadata.store import MetadataStore
from rtolap.object_store.store import ObjectStore, open_store

_FOLDER = "fleet/plans"


@dataclass(frozen=True)
class OpenedFleet:
    """The connections that work on a cluster takes. registry: whose placement rules every plan keeps to.
    rates: of this host's sources of brokers' metrics, if it declares any."""

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
        snapshot = collect_snapshot(self.administration, self.clock, self.rates)
        declared = self.registry.cluster_of(snapshot)
        allowed = None if declared is None else declared.allowed_brokers(snapshot)
        limits = Limits(throttle_bytes_per_s=throttle_bytes_per_s, allowed=allowed)
        plan = _planner(kind, broker)(snapshot, limits)
        if broker is not None and len(plan):
            self._check_drained(broker)
        digest = plan_digest(plan)
        path = f"{_FOLDER}/{digest}.json"
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
        if plan_digest(plan) != planned["digest"]:
            raise PlanChanged(
                "the plan is not the one that was approved",
                expected=planned["digest"],
                found=plan_digest(plan),
            )
        kept = KeptFleet(self.metadata, plan.cluster_id)
        submitted = _submitted(kept, planned)
        if submitted is not None:
            return submitted
        reason = f"approved in Airflow: {planned['digest'][:12]}"
        if planned["kind"] == Kind.DRAIN:
            self.brokers.drain(int(planned["broker"]), plan, by, reason, str(planned["digest"]))
        elif len(plan):
            snapshot = collect_snapshot(self.administration, self.clock)
            check_submittable(plan, snapshot, self.registry.cluster_of(snapshot))
            requests = MoverRequests(kept, self.clock, self.token, by)
            requests.submit(plan, rate_bytes_per_s=plan.throttle_bytes_per_s, reason=reason)
        return _submitted(kept, planned)

    def _check_drained(self, broker: int) -> None:
        state = self.brokers.view(broker).state
        if not legal(state, BrokerEvent.DRAIN):
            raise Refused(
                f"broker {broker} may not be drained",
                found=f"it is {state}",
                action="see rtolap fleet brokers",
            )

    def running(self) -> list[str]:
        """Return what moves: the plan that is carried out, and partitions under any reassignment."""
        cluster_id = self.administration.describe_cluster().cluster_id
        current = KeptFleet(self.metadata, cluster_id).current()
        plans = [] if current is None else [f"plan {current.record.plan_id}"]
        return plans + [str(partition) for partition in sorted(self.administration.running_reassignments())]

    def ended(self, plan_id: str) -> dict[str, int] | None:
        """Return how the moves of a plan ended, by their states; None while it is carried out."""
        cluster_id = self.administration.describe_cluster().cluster_id
        kept = KeptFleet(self.metadata, cluster_id).plan(plan_id)
        if kept is None:
            raise DefinitionError(f"there is no plan {plan_id}")
        if kept.record.state is not PlanState.ENDED:
            return None
        return {str(state): number for state, number in kept.record.counts().items() if number}

    def under_replicated(self) -> list[str]:
        """Return the partitions of which a replica is not in sync, as topic:number."""
        return [
            f"{topic}:{partition.number}"
            for topic, described in sorted(self.administration.describe_topics().items())
            for partition in described.partitions
            if set(partition.in_sync) < set(partition.replicas)
        ]


class FleetHook:
    """`cluster`: `kafka_default` for `default`, `kafka_NAME` for any other, or `kafka_conn_id`."""

    def __init__(self, cluster: str, kafka_conn_id: str | None = None) -> None:
        self._kafka = KafkaClusterHook(cluster, kafka_conn_id)

    async def load(self) -> None:
        """Read the connection without blocking, before `opened` is used in a thread of a trigger."""
        await self._kafka.load()

    @contextmanager
    def opened(self) -> Iterator[OpenedFleet]:
        settings = Settings()
        hook = self._kafka
        registry = HostRegistry(settings.include_dir, hook.cluster_name)
        file = settings.fleet_sources
        rates = None if file is None else SourceRates(read_sources(file))
        administration = KafkaAdministration(hook.cluster)
        try:
            store = open_cluster_store(settings)
            try:
                plans = open_store(settings.object_store)
                yield OpenedFleet(
                    administration, store, plans, settings.token(), SystemClock(), registry, rates
                )
            finally:
                store.close()
        finally:
            administration.close()


def _submitted(kept: KeptFleet, planned: Mapping[str, Any]) -> str | None:
    found = [record.plan_id for record in kept.plans() if record.digest == planned["digest"]]
    return found[-1] if found else None


def _planner(kind: str, broker: int | None) -> Callable[[Snapshot, Limits], Plan]:
    if kind == Kind.DISKS:
        return lambda snapshot, limits: plan_disks(snapshot, limits=limits)
    if kind == Kind.RACK:
        return lambda snapshot, limits: plan_racks(snapshot, limits=limits)
    if kind == Kind.DRAIN and broker is not None:
        return lambda snapshot, limits: plan_drain(snapshot, [broker], limits=limits)
    raise DefinitionError(
        "what is to be planned?", expected="disks, rack, or drain with a broker", found=kind
    )
