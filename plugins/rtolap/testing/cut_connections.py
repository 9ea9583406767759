"""A wire to a database that breaks just at a COMMIT: before the server has it, or after, its answer lost."""

from __future__ import annotations

import socket
import threading
from enum import StrEnum

_COMMIT = b"COMMIT"


class Cut(StrEnum):
    BEFORE = "before the server has the commit"
    AFTER = "after the server has committed"


class CuttingProxy:
    """Listens on loopback and passes on to `target`. `cut(where)`: break at the next commit, once."""

    def __init__(self, target: str) -> None:
        host, _, port = target.partition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._next: Cut | None = None
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self, where: Cut) -> None:
        self._next = where

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
        with client, socket.create_connection(self._target) as server:
            answers = threading.Thread(target=_copy, args=(server, client), daemon=True)
            answers.start()
            while request := _receive(client):
                where, self._next = (self._next, None) if _COMMIT in request else (None, self._next)
                if where is not None:
                    self.cuts += 1
                    # first deaf towards the client, then, perhaps, the commit: its answer cannot get through
                    client.shutdown(socket.SHUT_RDWR)
                if where is not Cut.BEFORE:
                    server.sendall(request)
                if where is Cut.AFTER:
                    server.shutdown(socket.SHUT_WR)
                    answers.join(10)  # the server ends its side when it has done all that it was sent
                if where is not None:
                    break
            # a close alone would not reach the server as long as the other thread reads
            _end(server)


def _end(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the other side was quicker


def _copy(source: socket.socket, sink: socket.socket) -> None:
    while piece := _receive(source):
        try:
            sink.sendall(piece)
        except OSError:
            continue  # nobody hears the answer; the source is still read to its end


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(65536)
    except OSError:
        return b""
