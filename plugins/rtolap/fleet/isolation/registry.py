"""The registry of Kafka fleets as files declare it, and plans held against it before they are submitted.

Which cluster of the registry a snapshot is of: the one that declares its cluster id; else the one that this
host reaches by the name under which the snapshot was taken. Whoever submits a plan, by command, from a DAG
or as a policy, reads the registry as it is then and asks `check_submittable`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rtolap.base.errors import DefinitionError
from rtolap.fleet.isolation.audit import check_cluster_id
from rtolap.fleet.isolation.placement import placement_rules
from rtolap.fleet.planning.placement import AllowedBrokers
from rtolap.fleet.planning.plan import Plan
from rtolap.fleet.planning.rules import check_applies
from rtolap.fleet.snapshot.model import FleetSnapshot
from rtolap.model.fleet import FleetCluster, KafkaFleet
from rtolap.model.yaml_files import read_definitions, read_fleets

RegisteredOf = Callable[[FleetSnapshot], "RegisteredCluster | None"]
"""Tells which cluster of the registry a snapshot is of; None: it declares no such cluster."""

_EXPECTED, _ACTION = "one document of kind: kafka_fleet", "name its file"


@dataclass(frozen=True)
class RegisteredCluster:
    """A cluster of the registry.

    Attributes:
        kafka_cluster: Name of the cluster on this host.
    """

    name: str
    declared: FleetCluster
    kafka_cluster: str

    def allowed_brokers(self, snapshot: FleetSnapshot) -> AllowedBrokers:
        """Return where topics may stand. Raises Refused for another cluster's snapshot."""
        check_cluster_id(self.name, self.declared, snapshot)
        return placement_rules(self.declared, snapshot).allowed_brokers


def read_registry(*paths: Path) -> KafkaFleet:
    """Read the registry. Raises DefinitionError where there is none, or more than one."""
    fleet = _one_of(read_definitions(*paths).fleets)
    if fleet is None:
        raise DefinitionError("one fleet is to be declared", expected=_EXPECTED, found="none", action=_ACTION)
    return fleet


def _one_of(fleets: Mapping[str, KafkaFleet]) -> KafkaFleet | None:
    if len(fleets) > 1:
        raise DefinitionError(
            "one fleet is to be declared",
            expected=_EXPECTED,
            found=", ".join(sorted(fleets)),
            action=_ACTION,
        )
    return next(iter(fleets.values()), None)


def read_optional_registry(folder: Path) -> KafkaFleet | None:
    """Read the fleet that the folder declares; return None without a folder or a fleet.

    Raises DefinitionError for files and fleets that cannot be read, and for more than one fleet. Other
    definitions are not checked: a wrong cube hinders no drain.
    """
    return _one_of(read_fleets(folder)) if folder.is_dir() else None


def registered_cluster(fleet: KafkaFleet, name: str) -> RegisteredCluster:
    """Return the registry's entry of a cluster. Raises NotFound where it has none."""
    return RegisteredCluster(name, fleet.cluster(name), fleet.kafka_cluster(name))


def cluster_of_snapshot(
    fleet: KafkaFleet, snapshot: FleetSnapshot, kafka_cluster: str | None
) -> RegisteredCluster | None:
    """Return the cluster that a snapshot shows; None where the registry does not declare it. `kafka_cluster`
    is the name under which the snapshot was taken, None for a recorded one."""
    names = [name for name, each in fleet.clusters.items() if each.cluster_id == snapshot.cluster_id]
    names += [name for name in fleet.clusters if fleet.kafka_cluster(name) == kafka_cluster]
    return registered_cluster(fleet, names[0]) if names else None


@dataclass(frozen=True)
class HostRegistry:
    """The registry of a host, read anew for each query.

    Attributes:
        kafka_cluster: Name of the queried cluster on the host.
    """

    folder: Path
    kafka_cluster: str

    def cluster_of(self, snapshot: FleetSnapshot) -> RegisteredCluster | None:
        """Return the cluster of a snapshot. Raises as `read_optional_registry`."""
        fleet = read_optional_registry(self.folder)
        return None if fleet is None else cluster_of_snapshot(fleet, snapshot, self.kafka_cluster)


def check_submittable(plan: Plan, snapshot: FleetSnapshot, registered: RegisteredCluster | None) -> None:
    """Hold a plan against its cluster and the registry as both are now. registered: None where no registry
    declares the cluster. Raises what `check_applies` does, PlanRefused where a replica would come to a broker
    where its topic may not stand, and Refused for another cluster's snapshot."""
    allowed = None if registered is None else registered.allowed_brokers(snapshot)
    check_applies(plan, snapshot, allowed=allowed)
