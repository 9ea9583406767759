"""The life of a cluster's brokers, for operators and sensors: what each look shows, and operations.

Not to be imported while DAGs are parsed, as `hooks.fleet`, which opens it.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtolap.base.clock import Clock
from rtolap.base.errors import Refused
from rtolap.fleet.isolation.findings import some
from rtolap.fleet.isolation.registry import RegisteredOf, check_submittable
from rtolap.fleet.lifecycle.actions import ClusterActions, PlannedDrains
from rtolap.fleet.lifecycle.brokers import BrokerOperations
from rtolap.fleet.lifecycle.observations import adopted_state, host_of, replicas_of, stopped_by
from rtolap.fleet.lifecycle.states import BrokerEvent, BrokerLife, BrokerRecord, legal
from rtolap.fleet.moves.kept import KeptFleet
from rtolap.fleet.planning.plan import Plan
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.model import Snapshot
from rtolap.kafka.administration.interface import FleetAdministration
from rtolap.metadata.store import MetadataStore


@dataclass(frozen=True)
class BrokerView:
    """A broker as a look shows it. replicas: on it, or on their way there. stopped: partitions that can be
    written now and could not without it. problem: why an operation on it is not done yet."""

    broker: int
    host: str
    state: BrokerLife
    replicas: int
    stopped: tuple[str, ...]
    problem: str | None = None

    @property
    def may_retire(self) -> bool:
        return not self.replicas and not self.problem and legal(self.state, BrokerEvent.RETIRE)


@dataclass(frozen=True)
class FleetBrokers:
    """The operations of `fleet.lifecycle` on one cluster. Each call looks at the cluster, and first notes
    what happened by itself."""

    administration: FleetAdministration
    metadata: MetadataStore
    token: str
    clock: Clock
    registered_of: RegisteredOf

    def view(self, broker: int) -> BrokerView:
        snapshot, operations = self._look()
        return _view(broker, snapshot, operations.records().get(broker))

    def drain(self, broker: int, plan: Plan, by: str, reason: str, operation_id: str) -> None:
        """Cordon the broker and submit the plan that empties it, as it was approved. One that holds nothing
        and is past its service needs none. A plan that does not fit is refused before anything is done."""
        snapshot, operations = self._look(plan)
        check_submittable(plan, snapshot, self.registered_of(snapshot))
        state = _view(broker, snapshot, operations.records().get(broker)).state
        if len(plan) or legal(state, BrokerEvent.DRAIN):
            operations.operate(broker, BrokerEvent.DRAIN, by, reason, snapshot, operation_id)

    def begin_repair(self, broker: int, by: str, reason: str, operation_id: str) -> BrokerLife:
        """Cordon the broker if it serves, and let it be stopped. Raises Refused where writing would end."""
        snapshot, operations = self._look()
        seen = _view(broker, snapshot, operations.records().get(broker))
        if legal(seen.state, BrokerEvent.CORDON):
            if seen.stopped:
                raise Refused(
                    f"broker {broker} may not be stopped now",
                    found=f"writing would end for {some(seen.stopped)}",
                )
            operations.operate(broker, BrokerEvent.CORDON, by, reason, snapshot, f"{operation_id}-cordon")
        return operations.operate(broker, BrokerEvent.REPAIR, by, reason, snapshot, operation_id).state

    def end_repair(self, broker: int, by: str, reason: str, operation_id: str) -> BrokerLife:
        """Let the broker be started; it serves once it is seen."""
        return self._operate(broker, BrokerEvent.REPAIRED, by, reason, operation_id)

    def retire(self, broker: int, by: str, reason: str, operation_id: str) -> BrokerLife:
        """Let the machine be given back. Raises Refused while it holds a replica."""
        return self._operate(broker, BrokerEvent.RETIRE, by, reason, operation_id)

    def _operate(
        self, broker: int, event: BrokerEvent, by: str, reason: str, operation_id: str
    ) -> BrokerLife:
        snapshot, operations = self._look()
        return operations.operate(broker, event, by, reason, snapshot, operation_id).state

    def _look(self, approved: Plan | None = None) -> tuple[Snapshot, BrokerOperations]:
        """Take a snapshot and bring earlier operations to it; `problem` in their records says what failed."""
        snapshot = collect_snapshot(self.administration, self.clock)
        drains = PlannedDrains(
            self.administration,
            KeptFleet(self.metadata, snapshot.cluster_id),
            self.clock,
            self.token,
            registered_of=self.registered_of,
            approved=approved,
        )
        actions = ClusterActions(self.administration, drains)
        operations = BrokerOperations(self.metadata, snapshot.cluster_id, actions, self.clock)
        operations.observe(snapshot)
        return snapshot, operations


def _view(broker: int, snapshot: Snapshot, record: BrokerRecord | None) -> BrokerView:
    pending = record is not None and bool(record.pending)
    return BrokerView(
        broker=broker,
        host=record.host if record else host_of(broker, snapshot),
        state=record.state if record else adopted_state(broker, snapshot),
        replicas=replicas_of(broker, snapshot),
        stopped=tuple(stopped_by(broker, snapshot)),
        problem=(record.problem or "another process is at it") if record and pending else None,
    )
