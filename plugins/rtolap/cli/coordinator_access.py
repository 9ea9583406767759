"""The coordinator as the settings name it, for commands."""

from __future__ import annotations

from collections.abc import Iterable

from rtolap.base.settings import Settings
from rtolap.cli.output import warn
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import ReplicaSetInfo
from rtolap.protocols.rest.request import RETRY_S, TIMEOUT_S


def coordinator_client(*, timeout_s: float = TIMEOUT_S, retry_s: float = RETRY_S) -> CoordinatorClient:
    settings = Settings()
    return CoordinatorClient(
        settings.coordinator_urls(), settings.token(), timeout_s=timeout_s, retry_s=retry_s
    )


def warn_of_replica_sets(replica_sets: Iterable[ReplicaSetInfo]) -> None:
    """Name, on stderr, the replica sets that one failure takes, or has taken."""
    for found in replica_sets:
        for shared in found.shared_places:
            warn(f"replica set {found.name}: {shared}, and fail with it")
        if found.problem is not None:
            warn(found.problem)
