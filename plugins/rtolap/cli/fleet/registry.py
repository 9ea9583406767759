"""The registry that a command goes by, and who gives the command."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings
from rtolap.fleet.isolation.audit import check_cluster_id
from rtolap.fleet.isolation.placement import placement_rules
from rtolap.fleet.planning.allowed import AllowedBrokers
from rtolap.fleet.snapshot.model import Snapshot
from rtolap.model.fleet import FleetCluster, KafkaFleet
from rtolap.model.yaml_files import read_definitions

RegistryOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--registry", help="Files or folders that declare the fleet; by default RTOLAP_INCLUDE_DIR."
    ),
]
ClusterNameOption = Annotated[
    str | None,
    typer.Option(
        "--cluster-name", help="Keep to the placement rules of this cluster of the registry; by default none."
    ),
]
ByOption = Annotated[str | None, typer.Option("--by", help="Who; by default the user of this shell.")]


def read_registry(paths: list[Path] | None, settings: Settings) -> KafkaFleet:
    """Raises DefinitionError where there is none, or more than one."""
    fleets = read_definitions(*(paths or [settings.include_dir])).fleets
    if len(fleets) != 1:
        raise DefinitionError(
            "one fleet is to be declared",
            expected="one document of kind: kafka_fleet",
            found=", ".join(sorted(fleets)) or "none",
            action="name its file with --registry",
        )
    (fleet,) = fleets.values()
    return fleet


@dataclass(frozen=True)
class DeclaredCluster:
    """A cluster of the registry. kafka_cluster: the name by which this host reaches it."""

    name: str
    declared: FleetCluster
    kafka_cluster: str

    def allowed_brokers(self, snapshot: Snapshot) -> AllowedBrokers:
        """Return where topics may stand. Raises Refused for another cluster's snapshot."""
        check_cluster_id(self.name, self.declared, snapshot)
        return placement_rules(self.declared, snapshot).allowed_brokers


def read_cluster(name: str, paths: list[Path] | None, settings: Settings) -> DeclaredCluster:
    """Raises as `read_registry`, and NotFound where the registry has no such cluster."""
    fleet = read_registry(paths, settings)
    return DeclaredCluster(name, fleet.cluster(name), fleet.kafka_cluster(name))


def read_optional_cluster(
    name: str | None, paths: list[Path] | None, settings: Settings
) -> DeclaredCluster | None:
    """Raises as `read_cluster`, and DefinitionError for a registry without the name of a cluster."""
    if name is not None:
        return read_cluster(name, paths, settings)
    if paths:
        raise DefinitionError(
            "--registry alone names no cluster", expected="--cluster-name, whose placement rules are kept"
        )
    return None


def operator(settings: Settings, by: str | None) -> str:
    """Return who changes something. Whoever may read the cluster's token is an operator; others get a
    DefinitionError."""
    settings.token()
    return by or getpass.getuser()
