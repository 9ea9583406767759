"""A wire to an HTTP service that breaks when an answer comes: the service has done it, nobody hears of it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

from rtolap.base.closing import Closing


class LosingProxy(Closing):
    """Listens on loopback and passes on to the service at `url`.

    `lose_next(meanwhile)`: the next answer does not get through. `meanwhile` is called when it has come, then
    the connection breaks. `lost`: how many did not get through; `failures`: what `meanwhile` has raised.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (str(parts.hostname), int(parts.port or 80))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._meanwhile: Callable[[], object] | None = None
        self.url = f"{parts.scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self.lost = 0
        self.failures: list[BaseException] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_next(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._meanwhile = meanwhile

    def close(self) -> None:
        _end(self._listener)  # a close alone would let in one more
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.closing(socket.create_connection(self._target)) as server:
            asking = threading.Thread(target=_copy, args=(client, server), daemon=True)
            asking.start()
            while answer := _receive(server):
                if (meanwhile := self._meanwhile) is not None:
                    self._meanwhile = None
                    try:
                        meanwhile()
                    except Exception as error:  # noqa: BLE001  the test that waits for it is told
                        self.failures.append(error)
                    self.lost += 1
                    break
                try:
                    client.sendall(answer)
                except OSError:
                    break
            _end(client)
            _end(server)
            asking.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    while piece := _receive(source):
        try:
            sink.sendall(piece)
        except OSError:
            return
    _end(sink)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side was quicker
        connection.shutdown(socket.SHUT_RDWR)


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(65536)
    except OSError:
        return b""
