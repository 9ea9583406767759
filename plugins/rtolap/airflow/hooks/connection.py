"""Addresses of a cluster's services, and the token for them: from a connection, completed by Settings.

The token goes to no address of another cluster: what a connection to one leaves out stays unknown.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit, urlunsplit

from rtolap.base.addresses import host_port
from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings

CONN_TYPE = "rtolap"
DEFAULT_CONN_ID = "rtolap_default"
T = TypeVar("T")


class ConnectionLike(Protocol):
    host: str | None
    port: int | None
    password: str | None

    @property
    def extra_dejson(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Endpoints:
    """The addresses of one cluster's services.

    Attributes:
        agent_url: empty where nothing says where the agent is; so are `stream_load_urls` and `query_url`.
        stream_load_urls: base URLs of front ends.
        query_url: base URL of a query service.
    """

    coordinator_urls: tuple[str, ...]
    agent_url: str
    stream_load_urls: tuple[str, ...]
    query_url: str
    token: str = field(repr=False)

    def agent(self) -> str:
        """Return the URL of the agent. Raises DefinitionError where it is not known."""
        return _known(self.agent_url, "agent", "agent_url")

    def loader_url(self, port: int) -> str:
        """Return the URL of a loader's port. Loads run on the host of the agent."""
        return urlunsplit(("http", host_port(urlsplit(self.agent()).hostname or "", port), "", "", ""))

    def front_ends(self) -> tuple[str, ...]:
        """Return the URLs of front ends. Raises DefinitionError where none is known."""
        return _known(self.stream_load_urls, "front ends", "stream_load_urls")

    def query_service(self) -> str:
        """Return the URL of a query service. Raises DefinitionError where none is known."""
        return _known(self.query_url, "query service", "query_url")


def from_settings(settings: Settings) -> Endpoints:
    return Endpoints(
        coordinator_urls=settings.coordinator_urls(),
        agent_url=settings.agent_url(),
        stream_load_urls=settings.stream_load_urls(),
        query_url=settings.query_url(),
        token=settings.token(),
    )


def from_connection(connection: ConnectionLike, settings: Settings) -> Endpoints:
    """Return the endpoints that a connection names: host and port are a coordinator's, extra
    `coordinator_urls` names several (separated by commas), `agent_url`, `stream_load_urls` and `query_url`
    the other services.

    What the connection leaves out is taken from the settings, the token too (from `token_file`). Where the
    connection leads to another cluster than the settings, no address is: see `_is_own`.
    """
    extra: Mapping[str, Any] = connection.extra_dejson
    named = _urls(extra, "coordinator_urls")
    if not named and (connection.host or connection.port):
        host = connection.host or settings.called_at()
        named = (f"http://{host_port(host, connection.port or settings.coordinator_port)}",)
    is_own = _is_own(named, connection.password, settings)
    agent_url = str(extra.get("agent_url") or "").strip()
    if not agent_url and (connection.host or is_own):
        agent_url = _agent_at(connection.host or settings.called_at(), settings)
    stream_load_urls = _urls(extra, "stream_load_urls")
    query_url = str(extra.get("query_url") or "").strip()
    if is_own:
        stream_load_urls = stream_load_urls or settings.stream_load_urls()
        query_url = query_url or settings.query_url()
    for url in (*named, *filter(None, (agent_url, query_url)), *stream_load_urls):
        if not url.startswith(("http://", "https://")):
            raise DefinitionError(
                "the rtolap connection has a wrong address", expected="http://host:port", found=repr(url)
            )
    return Endpoints(
        coordinator_urls=named or settings.coordinator_urls(),
        agent_url=agent_url,
        stream_load_urls=stream_load_urls,
        query_url=query_url,
        token=connection.password or settings.token(),
    )


def _is_own(coordinator_urls: tuple[str, ...], password: str | None, settings: Settings) -> bool:
    """Return True where the connection leads to the settings' own cluster: by its coordinators, or by its
    token, which a cluster shares with nobody."""
    if {_spelled(url) for url in coordinator_urls} <= {_spelled(url) for url in settings.coordinator_urls()}:
        return True
    if not password:
        return True  # the token is the settings' own
    try:
        own = settings.token()
    except DefinitionError:  # this host has no token, so it belongs to no cluster by it
        return False
    return hmac.compare_digest(password.encode(), own.encode())


def _urls(extra: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return tuple(url.strip() for url in str(extra.get(name) or "").split(",") if url.strip())


def _spelled(url: str) -> str:
    return url.rstrip("/").lower()


def _agent_at(host: str, settings: Settings) -> str:
    return f"http://{host_port(host, settings.agent_port)}"


def _known(found: T, service: str, extra: str) -> T:
    if not found:
        raise DefinitionError(
            f"the rtolap connection leads to another cluster than the settings, and not to its {service}",
            expected=f"the extra `{extra}`",
            action="add it to the connection: the token goes to no address of another cluster",
        )
    return found
