"""The storage nodes as the doors see them: by name, at the address that their last heartbeat gave.

A node whose lease has run out is not asked: one that stands still, as a paused machine does, would take every
call and answer none. Unless no node has a lease: then it was the doors or the ledger that were away.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Protocol

import pyarrow as pa

from rtolap.base.errors import Unavailable
from rtolap.ledger import nodes as rows
from rtolap.ledger.database import Connection, Ledger
from rtolap.ledger.records import StorageNode as NodeRow
from rtolap.wire.storage import (
    Heartbeat,
    HeartbeatAnswer,
    PutHead,
    StorageNodeInfo,
)
from rtolap.wire.storage_client import RowStream, StorageNode

LEASE_MS = 10_000
LATELY_MS = 24 * 3_600_000  # who is away for longer may be gone for ever
KNOWN_FOR_S = 1.0  # how long an address is believed without asking the ledger


class Clients(Protocol):
    """`wire.storage_client.StorageClients`, or nodes in the same process."""

    def at(self, address: str) -> StorageNode: ...


class StorageNodes:
    """Thread-safe. Addresses are read from the ledger, at most once in `KNOWN_FOR_S`."""

    def __init__(
        self,
        ledger: Ledger,
        clients: Clients,
        *,
        lease_ms: int = LEASE_MS,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger, self._clients, self._lease_ms, self._now_s = ledger, clients, lease_ms, now_s
        self._lock = Lock()
        self._known: dict[str, StorageNodeInfo] = {}
        self._known_until_s = 0.0

    def heartbeat(self, name: str, beat: Heartbeat) -> HeartbeatAnswer:
        """Note that a node lives, and where. Refused while another data folder has its name."""

        def work(connection: Connection) -> None:
            now_ms = self._ledger.now_ms(connection)
            node = NodeRow(name, beat.node_id, beat.address, beat.free_bytes, now_ms + self._lease_ms)
            rows.refresh(connection, node, now_ms)

        self._ledger.write(f"note the heartbeat of node {name}", type(None), work)
        with self._lock:
            known = self._known.get(name)
            if known is not None and not (known.alive and known.address == beat.address):
                self._known_until_s = 0.0  # it is back: asked again at once
        return HeartbeatAnswer(self._lease_ms)

    def alive(self, connection: Connection) -> tuple[str, ...]:
        """Names, for those that place new tablets."""
        return tuple(node.name for node in rows.alive(connection, self._ledger.now_ms(connection)))

    def lately(self, connection: Connection) -> tuple[str, ...]:
        """Names of those that live, or did within `LATELY_MS`."""
        since_ms = self._ledger.now_ms(connection) - LATELY_MS
        return tuple(node.name for node in rows.alive(connection, since_ms))

    def all_nodes(self) -> tuple[StorageNodeInfo, ...]:
        def work(connection: Connection) -> tuple[StorageNodeInfo, ...]:
            now_ms = self._ledger.now_ms(connection)
            return tuple(
                StorageNodeInfo(node.name, node.address, node.lease_until_ms > now_ms, node.free_bytes)
                for node in rows.all_nodes(connection)
            )

        return self._ledger.read("read the storage nodes", work)

    def address(self, name: str) -> str:
        """Raises Unavailable for a node that never sent a heartbeat, or whose lease has run out."""
        with self._lock:
            if self._now_s() >= self._known_until_s or name not in self._known:
                self._known = {node.name: node for node in self.all_nodes()}
                self._known_until_s = self._now_s() + KNOWN_FOR_S
            found = self._known.get(name)
            heard = any(node.alive for node in self._known.values())
        if found is None:
            raise Unavailable(f"storage node {name} has never sent a heartbeat")
        if heard and not found.alive:
            raise Unavailable(f"storage node {name} has sent no heartbeat for {self._lease_ms / 1000:g} s")
        return found.address

    def addresses(self) -> dict[str, str]:
        """By name, of those that live."""
        return {node.name: node.address for node in self.all_nodes() if node.alive}

    def client(self, name: str) -> StorageNode:
        return self._clients.at(self.address(name))

    def put(self, node: str, head: PutHead, columns: pa.Schema) -> RowStream:
        """A `RowNodes`."""
        return self.client(node).put(head, columns)
