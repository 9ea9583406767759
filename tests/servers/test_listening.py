"""Sockets of servers: every address of a host, at one port."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest
from pyarrow import flight
from rtolap.base.errors import Unauthorized, Unavailable
from rtolap.base.metrics import Metrics
from rtolap.protocols.receiver.client import ReceiverClient
from rtolap.servers.flight_server import GuardedFlightServer
from rtolap.servers.listening import listening_sockets

from tests.support.runs.loopback import LOOPBACK

TOKEN = "a token"


def _close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()


def test_all_addresses_of_a_name_get_the_same_free_port(monkeypatch: pytest.MonkeyPatch) -> None:
    _resolve_to(monkeypatch, ["127.0.0.1", "127.0.0.2"])
    sockets = listening_sockets("it", "both.example", 0)
    try:
        (one, two) = (each.getsockname() for each in sockets)
        assert (one[0], two[0]) == ("127.0.0.1", "127.0.0.2")
        assert one[1] == two[1] != 0
    finally:
        _close(sockets)


def test_a_free_port_that_another_address_has_not_is_given_up_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first port that the system gives at one address is taken at the other."""
    _resolve_to(monkeypatch, ["127.0.0.1", "127.0.0.2"])
    refused: list[int] = []
    bind = socket.socket.bind

    class Socket(socket.socket):
        def bind(self, address: Any) -> None:
            if address[0] == "127.0.0.2" and len(refused) < 2:
                refused.append(address[1])
                raise OSError(errno.EADDRINUSE, "taken")
            bind(self, address)

    monkeypatch.setattr(socket, "socket", Socket)
    sockets = listening_sockets("it", "both.example", 0)
    try:
        assert len(refused) == 2
        assert len({each.getsockname()[1] for each in sockets}) == 1
    finally:
        _close(sockets)


def test_a_port_that_is_taken_is_named_with_its_address() -> None:
    taken = listening_sockets("one", LOOPBACK, 0)
    port = taken[0].getsockname()[1]
    try:
        with pytest.raises(Unavailable, match=f"two cannot be served on .*{LOOPBACK}.*:{port}"):
            listening_sockets("two", LOOPBACK, port)
    finally:
        _close(taken)


class Peer(GuardedFlightServer):
    def do_action(self, context: Any, action: Any) -> Any:
        return iter([flight.Result(b"{}")])


def test_a_server_proves_to_be_at_the_address_that_it_announces() -> None:
    """It listens on all addresses. Who asks it by another one may have meant another server."""
    with Peer(
        host="0.0.0.0", announced_host="127.0.0.2", port=0, token=TOKEN, metrics=Metrics("receiver")
    ) as server:
        assert server.address == f"127.0.0.2:{server.port}"
        with ReceiverClient(server.address, TOKEN) as client:
            client.action("stats")
        for other in ("127.0.0.1", "0.0.0.0"):
            with (
                ReceiverClient(f"{other}:{server.port}", TOKEN) as client,
                pytest.raises(Unauthorized, match="another address"),
            ):
                client.action("stats")


def _resolve_to(monkeypatch: pytest.MonkeyPatch, addresses: list[str]) -> None:
    def resolved(*_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
