"""A wire between a client and a server in this test's hands: each connection is passed on by a thread."""

from __future__ import annotations

import abc
import contextlib
import socket
import threading

from rtolap.base.closeable import Closeable


class Proxy(Closeable):
    """Listens on loopback, at `address`, and opens a connection to `target` for each one that comes."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections; those that are open go on."""
        end(self._listener)  # a close alone would let in one more
        self._listener.close()

    @abc.abstractmethod
    def pass_on(self, client: socket.socket, server: socket.socket) -> None:
        """Pass bytes on, in a thread of the connection's own. Both sides are ended and closed when it
        returns."""

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.closing(socket.create_connection(self._target)) as server:
            try:
                self.pass_on(client, server)
            finally:
                # a close alone would not reach the other side as long as another thread reads
                end(client)
                end(server)


def copied(source: socket.socket, sink: socket.socket) -> threading.Thread:
    """Return a thread that copies until the source ends, also when nobody reads it any more, and ends the
    sink."""
    thread = threading.Thread(target=_copy, args=(source, sink), daemon=True)
    thread.start()
    return thread


def receive(source: socket.socket) -> bytes:
    """Return the bytes that have come; nothing at the end, however that came."""
    try:
        return source.recv(65536)
    except OSError:
        return b""


def end(connection: socket.socket) -> None:
    """End a connection in both directions. It is harmless where the other side was quicker."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    while piece := receive(source):
        with contextlib.suppress(OSError):
            sink.sendall(piece)
    end(sink)
