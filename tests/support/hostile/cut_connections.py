"""A wire to a database that breaks just at a COMMIT: before the server has it, or after, its answer lost."""

from __future__ import annotations

import socket
from enum import StrEnum

from tests.support.proxies import Proxy, copied, end, receive

_COMMIT = b"COMMIT"


class Cut(StrEnum):
    BEFORE = "before the server has the commit"
    AFTER = "after the server has committed"


class CuttingProxy(Proxy):
    """Passes on to `target`, host:port. `cut(where)`: break at the next commit, once."""

    def __init__(self, target: str) -> None:
        host, _, port = target.partition(":")
        self._next: Cut | None = None
        self.cuts = 0
        super().__init__((host, int(port)))

    def cut(self, where: Cut) -> None:
        self._next = where

    def pass_on(self, client: socket.socket, server: socket.socket) -> None:
        answers = copied(server, client)
        while request := receive(client):
            where, self._next = (self._next, None) if _COMMIT in request else (None, self._next)
            if where is not None:
                self.cuts += 1
                end(client)  # first deaf towards the client, then, perhaps, the commit: its answer is lost
            if where is not Cut.BEFORE:
                server.sendall(request)
            if where is Cut.AFTER:
                server.shutdown(socket.SHUT_WR)
                answers.join(10)  # the server ends its side when it has done all that it was sent
            if where is not None:
                break
