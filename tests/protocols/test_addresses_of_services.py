"""An address that nobody can ask is refused when a client is made: it is not waited for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rtolap.base.errors import DefinitionError, Unavailable
from rtolap.dbapi import InterfaceError, connect
from rtolap.protocols.agent.client import AgentClient, AsyncAgentClient
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.loader.client import AsyncLoaderClient, LoaderClient
from rtolap.protocols.query.async_client import AsyncQueryClient
from rtolap.protocols.query.client import QueryClient
from rtolap.protocols.receiver.client import ReceiverClient
from rtolap.protocols.storage.client import StorageClient
from rtolap.protocols.stored_tables.client import StoredTablesClient
from rtolap.protocols.stream_load.client import StreamLoadClient

MADE: dict[str, Callable[[str], object]] = {
    "agent": lambda url: AgentClient(url, "token"),
    "agent, asynchronous": lambda url: AsyncAgentClient(url, "token"),
    "coordinator": lambda url: CoordinatorClient([url], "token"),
    "second coordinator": lambda url: CoordinatorClient(["http://one:7070", url], "token"),
    "loader": lambda url: LoaderClient(url, "token"),
    "loader, asynchronous": lambda url: AsyncLoaderClient(url, "token"),
    "query": lambda url: QueryClient(url, token="token"),
    "query, asynchronous": lambda url: AsyncQueryClient(url, "token"),
    "stored tables": lambda url: StoredTablesClient([url], "token"),
    "stream load": lambda url: StreamLoadClient([url], "user", "password"),
}
NOBODY = [
    "",
    "localhost:7070",
    "//host:7070",
    "ftp://host",
    "http://",
    "http://:7070",
    "http://[::1",
    "http://host:port",
    "http://host:99999",
    "http://host:0",
    "http://a host",
    "http://user:secret@host:7070",
]


@pytest.mark.parametrize("client", MADE)
@pytest.mark.parametrize("url", NOBODY)
def test_what_no_client_can_ask_is_refused_and_credentials_are_not_shown(client: str, url: str) -> None:
    with pytest.raises(DefinitionError, match=r"http\(s\)://host:port") as caught:
        MADE[client](url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", NOBODY)
def test_the_db_api_refuses_it_by_its_own_errors(url: str) -> None:
    with pytest.raises(InterfaceError, match="query service"):
        connect(url, token="token")


@pytest.mark.parametrize("client", MADE)
@pytest.mark.parametrize(
    "url", ["http://host:7070/", "https://host", "http://[::1]:7070", " http://10.0.0.7:80 "]
)
def test_others_are_taken(client: str, url: str) -> None:
    MADE[client](url)


@pytest.mark.parametrize("address", ["a host:1", "::1:7080", "host:port", "host:99999", "hôte:7080"])
@pytest.mark.parametrize("client", [ReceiverClient, StorageClient])
def test_an_address_that_was_announced_and_that_nobody_can_call_is_that_of_a_server_that_is_away(
    client: Callable[[str, str], object], address: str
) -> None:
    with pytest.raises(Unavailable, match="nobody can be called"):
        client(address, "token")
