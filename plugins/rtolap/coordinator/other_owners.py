"""What only the owner of an application knows, when it is another coordinator: requested from it."""

from __future__ import annotations

from collections.abc import Callable

from rtolap.base.errors import NotOwner
from rtolap.coordinator.applications.registry import Applications
from rtolap.model.completeness import Completeness
from rtolap.protocols.coordinator.client import CoordinatorClient

OpenClient = Callable[[str], CoordinatorClient]


class OtherOwners:
    """`open_client` opens a client of the coordinator at an address that was read in ZooKeeper."""

    def __init__(self, applications: Applications, open_client: OpenClient) -> None:
        self._applications = applications
        self._open_client = open_client

    def completeness(self, application: str, cube: str, window_end_ms: int) -> Completeness:
        """Return what the owner knows of a window. Raises NotOwner while the application moves, and what the
        owner raises."""
        url = self._applications.owner_url(application)
        if url is None:
            raise NotOwner(f"application {application} is run by nobody at this moment")
        with self._open_client(url) as client:
            known = client.application_completeness(application, cube, window_end_ms)
        return Completeness(**known.model_dump())
