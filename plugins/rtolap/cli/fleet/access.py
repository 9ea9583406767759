"""Access of the fleet's commands: the Kafka cluster, what is recorded of it, the registry, the operator."""

from __future__ import annotations

import getpass
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings
from rtolap.cli.kafka_access import kafka_cluster
from rtolap.cli.output import JsonOption
from rtolap.fleet.isolation.clients import DeclaredClient, declared_clients
from rtolap.fleet.isolation.registry import (
    RegisteredCluster,
    cluster_of_snapshot,
    read_optional_registry,
    registered_cluster,
)
from rtolap.fleet.isolation.registry import read_registry as read_declared_fleet
from rtolap.fleet.snapshot.model import FleetSnapshot
from rtolap.kafka.administration.client import KafkaAdministration
from rtolap.metadata.cluster_store import open_cluster_store
from rtolap.metadata.signed import SignedStore
from rtolap.model.fleet import KafkaFleet
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER
from rtolap.model.yaml_files import read_definitions

ClusterOption = Annotated[str, typer.Option("--cluster", help="Name of the Kafka cluster on this host.")]
RegistryOption = Annotated[
    list[Path] | None,
    typer.Option("--registry", help="Files or folders that declare the fleet. Default: RTOLAP_INCLUDE_DIR."),
]
ClusterNameOption = Annotated[
    str | None,
    typer.Option(
        "--cluster-name",
        help="Cluster of the registry whose placement rules apply. Default: this cluster.",
    ),
]
ByOption = Annotated[
    str | None, typer.Option("--by", help="Name of the person. Default: the user of this shell.")
]


@dataclass(frozen=True)
class OperatorOptions:
    """Options of commands by which a person changes something of a Kafka cluster."""

    by: ByOption = None
    cluster: ClusterOption = DEFAULT_KAFKA_CLUSTER
    as_json: JsonOption = False


def open_administration(cluster: str = DEFAULT_KAFKA_CLUSTER) -> closing[KafkaAdministration]:
    return closing(KafkaAdministration(kafka_cluster(Settings(), cluster)))


def open_metadata(settings: Settings) -> closing[SignedStore]:
    return closing(open_cluster_store(settings))


def read_registry(paths: list[Path] | None, settings: Settings) -> KafkaFleet:
    """Read the registry of the host. Raises DefinitionError where there is none, or more than one."""
    return read_declared_fleet(*(paths or [settings.include_dir]))


def read_clients(paths: list[Path] | None, settings: Settings) -> tuple[DeclaredClient, ...]:
    """Return what the registry's files declare beside it that reads or writes topics."""
    return declared_clients(read_definitions(*(paths or [settings.include_dir])))


def read_cluster(name: str, paths: list[Path] | None, settings: Settings) -> RegisteredCluster:
    """Read a cluster's entry of the registry. Raises as `read_registry`, and NotFound where the registry has
    no such cluster."""
    return registered_cluster(read_registry(paths, settings), name)


def find_cluster(
    snapshot: FleetSnapshot,
    kafka_cluster: str | None,
    name: str | None,
    paths: list[Path] | None,
    settings: Settings,
) -> RegisteredCluster | None:
    """Return the registered cluster that the snapshot is of. kafka_cluster: the name under which it was
    taken, None for a recorded one. name: what was named instead. None where no registry declares it.

    Raises as `read_cluster`, and DefinitionError for a named registry that does not declare it."""
    if name is not None:
        return read_cluster(name, paths, settings)
    if paths:
        found = cluster_of_snapshot(read_registry(paths, settings), snapshot, kafka_cluster)
        if found is None:
            raise DefinitionError(
                f"the registry declares no cluster {snapshot.cluster_id}",
                expected="--cluster-name, whose placement rules are kept",
            )
        return found
    fleet = read_optional_registry(settings.include_dir)
    return None if fleet is None else cluster_of_snapshot(fleet, snapshot, kafka_cluster)


def operator(settings: Settings, by: str | None) -> str:
    """Return the name of the person who changes something. A user who may read the cluster's token is an
    operator; others get a DefinitionError."""
    settings.token()
    return by or getpass.getuser()
