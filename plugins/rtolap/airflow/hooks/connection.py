"""Addresses of coordinator and agent, and the token for them: from a connection, completed by Settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings

CONN_TYPE = "rtolap"
DEFAULT_CONN_ID = "rtolap_default"


class ConnectionLike(Protocol):
    host: str | None
    port: int | None
    password: str | None

    @property
    def extra_dejson(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Endpoints:
    coordinator_urls: tuple[str, ...]
    agent_url: str
    token: str = field(repr=False)

    def loader_url(self, port: int) -> str:
        """Return the URL of a loader's port. Loads run on the host of the agent."""
        return urlunsplit(("http", f"{_host(self.agent_url)}:{port}", "", "", ""))


def from_settings(settings: Settings) -> Endpoints:
    return Endpoints(
        coordinator_urls=settings.coordinator_urls(),
        agent_url=f"http://{settings.host}:{settings.agent_port}",
        token=settings.token(),
    )


def from_connection(connection: ConnectionLike, settings: Settings) -> Endpoints:
    """Return the endpoints that a connection names: host and port are a coordinator's, extra
    `coordinator_urls` names several (separated by commas).

    What the connection leaves out is taken from the settings, the token too (from `token_file`).
    """
    extra: Mapping[str, Any] = connection.extra_dejson
    host = connection.host or settings.host
    urls = tuple(url.strip() for url in str(extra.get("coordinator_urls") or "").split(",") if url.strip())
    if not urls and (connection.host or connection.port):
        urls = (f"http://{host}:{connection.port or settings.coordinator_port}",)
    urls = urls or settings.coordinator_urls()
    agent_url = str(extra.get("agent_url") or f"http://{host}:{settings.agent_port}")
    for url in (*urls, agent_url):
        if not url.startswith(("http://", "https://")):
            raise DefinitionError(
                "the rtolap connection has a wrong address", expected="http://host:port", found=repr(url)
            )
    return Endpoints(urls, agent_url, connection.password or settings.token())


def _host(url: str) -> str:
    """Return the host of `url` as an address spells it: IPv6 addresses are in brackets."""
    host = urlsplit(url).hostname or ""
    return f"[{host}]" if ":" in host else host
