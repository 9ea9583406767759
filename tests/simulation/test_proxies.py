"""A proxy passes everything on, to the end, and can be closed while connections are open."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.hostile.cut_connections import Cut, CuttingProxy
from tests.support.proxies import Proxy, copied, receive

TIMEOUT_S = 30.0


class Plain(Proxy):
    def pass_on(self, client: socket.socket, server: socket.socket) -> None:
        answers = copied(server, client)
        while piece := receive(client):
            server.sendall(piece)
        server.shutdown(socket.SHUT_WR)
        answers.join(TIMEOUT_S)


class Echo:
    """A server that sends back what it gets, until its client ends. `got`: of all connections."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = ("127.0.0.1", int(self.listener.getsockname()[1]))
        self.got = bytearray()
        self.ended = threading.Event()


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    listener = made.listener

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    while piece := receive(connection):
                        made.got += piece
                        connection.sendall(piece)
                made.ended.set()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield made
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(TIMEOUT_S)


def connected(proxy: Proxy) -> socket.socket:
    host, _, port = proxy.address.partition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)


def test_everything_is_passed_on_to_the_end(echo: Echo) -> None:
    sent = bytes(range(256)) * 4_000
    with Plain(echo.address) as proxy, connected(proxy) as client:

        def send() -> None:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)

        sending = threading.Thread(target=send, daemon=True)
        sending.start()
        found = bytearray()
        while piece := client.recv(65536):
            found += piece
        sending.join(TIMEOUT_S)
    assert bytes(found) == sent


def test_a_closed_proxy_lets_nobody_in_and_open_connections_go_on(echo: Echo) -> None:
    proxy = Plain(echo.address)
    with connected(proxy) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        proxy.close()
        with pytest.raises(ConnectionRefusedError):
            connected(proxy)
        client.sendall(b"b")
        assert client.recv(1) == b"b"


@pytest.mark.parametrize("where", list(Cut))
def test_a_wire_that_is_cut_at_a_commit_lets_it_through_or_not_and_its_answer_never(
    echo: Echo, where: Cut
) -> None:
    host, port = echo.address
    with CuttingProxy(f"{host}:{port}") as proxy, connected(proxy) as client:
        client.sendall(b"INSERT")
        assert client.recv(6) == b"INSERT"
        proxy.cut(where)
        client.sendall(b"COMMIT")
        assert receive(client) == b""
        assert echo.ended.wait(TIMEOUT_S)
        assert proxy.cuts == 1
    assert echo.got == (b"INSERTCOMMIT" if where is Cut.AFTER else b"INSERT")
