"""A connection to an HTTP service that breaks when a response comes: the service has done the request."""

from __future__ import annotations

import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from tests.support.proxies import Proxy, copied, end, receive


class LosingProxy(Proxy):
    """Passes on to the service at `target_url`; `url` is where it listens itself.

    `lose_next(meanwhile)`: the next answer does not get through. `meanwhile` is called when it has come, then
    the connection breaks. `lost`: how many did not get through; `failures`: what `meanwhile` has raised.
    """

    def __init__(self, target_url: str) -> None:
        parts = urlsplit(target_url)
        self._meanwhile: Callable[[], object] | None = None
        self.lost = 0
        self.failures: list[BaseException] = []
        super().__init__((str(parts.hostname), int(parts.port or 80)))
        self.url = f"{parts.scheme}://{self.address}"

    def lose_next(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._meanwhile = meanwhile

    def pass_on(self, client: socket.socket, server: socket.socket) -> None:
        asking = copied(client, server)
        while answer := receive(server):
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
        end(client)
        end(server)
        asking.join()
