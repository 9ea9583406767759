"""A proxy passes everything on, to the end, and can be closed while connections are open."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from rtolap.testing.proxies import Proxy, copied, receive

TIMEOUT_S = 30.0


class Plain(Proxy):
    def pass_on(self, client: socket.socket, server: socket.socket) -> None:
        answers = copied(server, client)
        while piece := receive(client):
            server.sendall(piece)
        server.shutdown(socket.SHUT_WR)
        answers.join(TIMEOUT_S)


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that sends back what it gets, until its client ends."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    while piece := receive(connection):
                        connection.sendall(piece)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield ("127.0.0.1", listener.getsockname()[1])
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(TIMEOUT_S)


def connected(proxy: Proxy) -> socket.socket:
    host, _, port = proxy.address.partition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)


def test_everything_is_passed_on_to_the_end(echo: tuple[str, int]) -> None:
    sent = bytes(range(256)) * 4_000
    with Plain(echo) as proxy, connected(proxy) as client:

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


def test_a_closed_proxy_lets_nobody_in_and_open_connections_go_on(echo: tuple[str, int]) -> None:
    proxy = Plain(echo)
    with connected(proxy) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        proxy.close()
        with pytest.raises(ConnectionRefusedError):
            connected(proxy)
        client.sendall(b"b")
        assert client.recv(1) == b"b"
