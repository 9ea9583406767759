"""RtolapHook makes clients for the services of the cluster that a connection names."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from rtolap.airflow.hooks.awaited import AwaitedConnections
from rtolap.airflow.hooks.connection import (
    CONN_TYPE,
    DEFAULT_CONN_ID,
    Endpoints,
    from_connection,
    from_settings,
)
from rtolap.base.errors import RtolapError
from rtolap.base.settings import Settings
from rtolap.protocols.agent.client import AgentClient, AsyncAgentClient
from rtolap.protocols.coordinator.client import AsyncCoordinatorClient, CoordinatorClient
from rtolap.protocols.loader.client import TIMEOUT_S as LOADER_TIMEOUT_S
from rtolap.protocols.loader.client import AsyncLoaderClient, LoaderClient
from rtolap.protocols.query.async_client import AsyncQueryClient
from rtolap.protocols.rest.request import RETRY_S, TIMEOUT_S
from rtolap.protocols.stored_tables.client import StoredTablesClient


class RtolapHook(AwaitedConnections):
    """A hook that reads its connection once. The default connection may be missing; RTOLAP_* variables then
    serve."""

    conn_name_attr = "rtolap_conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = CONN_TYPE
    hook_name = "rtolap"

    def __init__(self, rtolap_conn_id: str = DEFAULT_CONN_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rtolap_conn_id = rtolap_conn_id

    @cached_property
    def endpoints(self) -> Endpoints:
        is_default = self.rtolap_conn_id == DEFAULT_CONN_ID
        connection = self.optional_connection(self.rtolap_conn_id, required=not is_default)
        if connection is None:
            self.log.info("connection %s is not seen here: RTOLAP_* variables serve", self.rtolap_conn_id)
            return from_settings(Settings())
        return from_connection(connection, Settings())

    async def load(self) -> None:
        """Read the connection without blocking; triggers call it before they request a client."""
        await self.read(self.rtolap_conn_id)

    def coordinator(self, *, timeout_s: float = TIMEOUT_S, retry_s: float = RETRY_S) -> CoordinatorClient:
        """Return a client that waits `timeout_s` for an answer, and asks again for `retry_s`."""
        return CoordinatorClient(
            self.endpoints.coordinator_urls, self.endpoints.token, timeout_s=timeout_s, retry_s=retry_s
        )

    def agent(self) -> AgentClient:
        return AgentClient(self.endpoints.agent(), self.endpoints.token)

    def loader(self, port: int, *, timeout_s: float = LOADER_TIMEOUT_S) -> LoaderClient:
        """Return a client of the loader with that port on the agent's host."""
        return LoaderClient(self.endpoints.loader_url(port), self.endpoints.token, timeout_s=timeout_s)

    def stored_tables(self, *, read_timeout_s: float, retry_s: float) -> StoredTablesClient:
        """Return a client of the connection's front ends. Their certificates are checked by the settings."""
        return StoredTablesClient(
            self.endpoints.front_ends(),
            self.endpoints.token,
            read_timeout_s=read_timeout_s,
            retry_s=retry_s,
            ca=Settings().stream_load_ca,
        )

    def async_query(self, *, on_behalf_of: str = "") -> AsyncQueryClient:
        """Return a client of the connection's query service. `on_behalf_of`: as `service:name`."""
        return AsyncQueryClient(
            self.endpoints.query_service(),
            self.endpoints.token,
            on_behalf_of=on_behalf_of,
            ca_file=Settings().query_ca,
        )

    def async_loader(self, port: int) -> AsyncLoaderClient:
        return AsyncLoaderClient(self.endpoints.loader_url(port), self.endpoints.token)

    def cube_names(self) -> list[str]:
        """Return the names that tasks over all cubes are mapped over."""
        with self.coordinator() as coordinator:
            return [cube.name for cube in coordinator.cubes()]

    def async_coordinator(self) -> AsyncCoordinatorClient:
        return AsyncCoordinatorClient(self.endpoints.coordinator_urls, self.endpoints.token)

    def async_agent(self) -> AsyncAgentClient:
        return AsyncAgentClient(self.endpoints.agent(), self.endpoints.token)

    def test_connection(self) -> tuple[bool, str]:
        """Return True if coordinator and agent accept the token. The connection form calls it."""
        try:
            with self.coordinator() as coordinator, self.agent() as agent:
                cluster = coordinator.cluster()
                running = sum(status.is_live for status in agent.processes())
        except RtolapError as error:
            return False, str(error)
        return True, f"leader {cluster.leader_url}, {len(cluster.cubes)} cubes, {running} processes running"
