"""The life of a cluster's brokers, for commands, DAGs and policies: looks at brokers, operations on them."""

from __future__ import annotations

from dataclasses import dataclass

from rtolap.base.clock import Clock
from rtolap.base.errors import DefinitionError, Refused, RtolapError
from rtolap.fleet.isolation.findings import some
from rtolap.fleet.isolation.registry import RegisteredOf, check_submittable
from rtolap.fleet.lifecycle.actions import ClusterActions
from rtolap.fleet.lifecycle.brokers import BrokerOperations
from rtolap.fleet.lifecycle.observations import adopted_state, host_of, replicas_of, stopped_by
from rtolap.fleet.lifecycle.states import BrokerEvent, BrokerLife, BrokerRecord, legal
from rtolap.fleet.moves.store import FleetStore
from rtolap.fleet.operations.drains import PlannedDrains
from rtolap.fleet.planning.plan import THROTTLE_BYTES_PER_S, Plan
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.model import FleetSnapshot
from rtolap.kafka.administration.interface import FleetAdministration
from rtolap.metadata.store import MetadataStore


@dataclass(frozen=True)
class BrokerView:
    """A broker as a look shows it.

    Attributes:
        replicas: how many are on it, or on their way there.
        stopped: partitions that can be written now and could not without it.
        problem: why an operation on it is not done yet; None where none is pending.
    """

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
class OpenedBrokers:
    """A cluster at one moment, and what is recorded of its brokers."""

    snapshot: FleetSnapshot
    operations: BrokerOperations

    def known(self) -> dict[int, BrokerRecord | None]:
        """Return the brokers that are there, or recorded, by id."""
        records = self.operations.records()
        ids = sorted({*records, *self.snapshot.brokers.ids.tolist()})
        return {broker: records.get(broker) for broker in ids}

    def host_of(self, broker: int) -> str:
        """Return the host that a broker of the cluster has registered. Raises DefinitionError where it has
        not."""
        host = host_of(broker, self.snapshot)
        if not host:
            raise DefinitionError(
                f"broker {broker} has not registered, so its machine is not known",
                expected="--host with the machine on which it is about to start",
            )
        return host

    def view(self, broker: int) -> BrokerView:
        snapshot, record = self.snapshot, self.operations.records().get(broker)
        pending = record is not None and bool(record.pending)
        return BrokerView(
            broker=broker,
            host=record.host if record else host_of(broker, snapshot),
            state=record.state if record else adopted_state(broker, snapshot),
            replicas=replicas_of(broker, snapshot),
            stopped=tuple(stopped_by(broker, snapshot)),
            problem=(record.problem or "another process is at it") if record and pending else None,
        )

    def note(self) -> dict[int, RtolapError]:
        """Note what happened by itself, and go on with what is pending. Returns what failed, by broker: the
        records say it too."""
        return self.operations.observe(self.snapshot)

    def operate(
        self, broker: int, event: BrokerEvent, by: str, reason: str, operation_id: str | None = None
    ) -> BrokerRecord:
        """See `BrokerOperations.operate`."""
        return self.operations.operate(broker, event, by, reason, self.snapshot, operation_id)


@dataclass(frozen=True)
class FleetBrokers:
    """The brokers of one cluster, and operations on them.

    Attributes:
        token: Token of the cluster, which signs requests to the mover. Empty where no operation follows.
        registered_of: Returns the registry's cluster of a snapshot.
    """

    administration: FleetAdministration
    metadata: MetadataStore
    token: str
    clock: Clock
    registered_of: RegisteredOf
    throttle_bytes_per_s: int = THROTTLE_BYTES_PER_S

    def look(self, approved: Plan | None = None) -> OpenedBrokers:
        """Look at the brokers. `approved` is the plan by which a broker is drained; None where a plan is made
        with the drain."""
        snapshot = collect_snapshot(self.administration, self.clock)
        drains = PlannedDrains(
            self.administration,
            FleetStore(self.metadata, snapshot.cluster_id),
            self.clock,
            self.token,
            registered_of=self.registered_of,
            approved=approved,
            throttle_bytes_per_s=self.throttle_bytes_per_s,
        )
        actions = ClusterActions(self.administration, drains)
        return OpenedBrokers(
            snapshot, BrokerOperations(self.metadata, snapshot.cluster_id, actions, self.clock)
        )

    def noted(self, approved: Plan | None = None) -> OpenedBrokers:
        """Look, after what happened by itself is noted."""
        opened = self.look(approved)
        opened.note()
        return opened

    def view(self, broker: int) -> BrokerView:
        return self.noted().view(broker)

    def approved_drain(self, plan: Plan) -> OpenedBrokers:
        """Look at a cluster whose broker this plan is to empty, before the broker is cordoned. Raises what
        `check_submittable` does."""
        opened = self.look(plan)
        check_submittable(plan, opened.snapshot, self.registered_of(opened.snapshot))
        return opened

    def drain(self, broker: int, plan: Plan, by: str, reason: str, operation_id: str) -> None:
        """Cordon the broker and submit the plan that empties it, as it was approved. A broker that holds
        nothing and is past its service needs no plan. A plan that does not fit is refused before anything is
        done."""
        opened = self.approved_drain(plan)
        opened.note()
        if len(plan) or legal(opened.view(broker).state, BrokerEvent.DRAIN):
            opened.operate(broker, BrokerEvent.DRAIN, by, reason, operation_id)

    def begin_repair(self, broker: int, by: str, reason: str, operation_id: str) -> BrokerLife:
        """Cordon the broker if it serves, and let it be stopped. Raises Refused where writing would end."""
        opened = self.noted()
        seen = opened.view(broker)
        if legal(seen.state, BrokerEvent.CORDON):
            if seen.stopped:
                raise Refused(
                    f"broker {broker} may not be stopped now",
                    found=f"writing would end for {some(seen.stopped)}",
                )
            opened.operate(broker, BrokerEvent.CORDON, by, reason, f"{operation_id}-cordon")
        return opened.operate(broker, BrokerEvent.REPAIR, by, reason, operation_id).state

    def end_repair(self, broker: int, by: str, reason: str, operation_id: str) -> BrokerLife:
        """Let the broker be started; it serves once it is seen."""
        return self.noted().operate(broker, BrokerEvent.REPAIRED, by, reason, operation_id).state

    def retire(self, broker: int, by: str, reason: str, operation_id: str) -> BrokerLife:
        """Let the machine be given back. Raises Refused while it holds a replica."""
        return self.noted().operate(broker, BrokerEvent.RETIRE, by, reason, operation_id).state
