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

    def problem(self, application: str) -> str | None:
        """Return why cubes that close by an application wait, if that is because nobody runs it.

        Return None for what runs here, and for one that does not exist: of these more is known.
        """
        if self._applications.own.known(application) is not None:
            return None
        if application not in self._applications.names() or self._applications.owner_url(application):
            return None
        return (
            f"its segments do not close: application {application} is run by no coordinator at this moment; "
            "if that goes on, the log of the coordinator that should run it says why"
        )
