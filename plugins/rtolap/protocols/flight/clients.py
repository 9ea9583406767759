"""One Flight client for each address, made on first use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from rtolap.base.closeable import Closeable

C = TypeVar("C", bound=Closeable)


class FlightClients(Closeable, Generic[C]):
    """Thread-safe. `connect` makes the client of an address; it reaches nobody yet."""

    def __init__(self, connect: Callable[[str], C]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._clients: dict[str, C] = {}

    def at(self, address: str) -> C:
        with self._lock:
            client = self._clients.get(address)
            if client is None:
                client = self._clients[address] = self._connect(address)
            return client

    def keep(self, addresses: Collection[str]) -> None:
        """Close those of other addresses."""
        with self._lock:
            gone = [self._clients.pop(known) for known in list(self._clients) if known not in addresses]
        for client in gone:
            client.close()

    def close(self) -> None:
        self.keep(())
