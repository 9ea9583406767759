"""The storage nodes of the ledger: heartbeats are noted there, and every front end reads who lives."""

from __future__ import annotations

import time
from collections.abc import Callable

from rtolap.base.decoding import copied
from rtolap.protocols.storage.messages import Heartbeat, HeartbeatAnswer, StorageNodeInfo
from rtolap.stored.metastore import nodes as rows
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.records import StorageNode as NodeRow
from rtolap.stored.stream_load.node_directory import Clients, NodeDirectory

LEASE_MS = 10_000
LATELY_MS = 24 * 3_600_000  # who is away for longer may be gone for ever


class StorageNodes(NodeDirectory):
    """The storage nodes of the ledger. It is thread-safe."""

    def __init__(
        self,
        ledger: Ledger,
        clients: Clients,
        *,
        lease_ms: int = LEASE_MS,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(self.all_nodes, clients, now_s=now_s)
        self._ledger, self._lease_ms = ledger, lease_ms

    def heartbeat(self, name: str, beat: Heartbeat) -> HeartbeatAnswer:
        """Note that a node lives, and where. Raises Refused while another data folder has its name."""

        def work(connection: Connection) -> None:
            now_ms = self._ledger.now_ms(connection)
            node = NodeRow(
                name, beat.node_id, beat.address, beat.free_bytes, now_ms + self._lease_ms, beat.body_url
            )
            rows.refresh(connection, node, now_ms)

        self._ledger.write(f"note the heartbeat of node {name}", type(None), work)
        self.note_heard(name, beat.address)
        return HeartbeatAnswer(self._lease_ms)

    def alive(self, connection: Connection) -> tuple[str, ...]:
        """Return the names of live nodes."""
        return tuple(node.name for node in rows.alive(connection, self._ledger.now_ms(connection)))

    def open(self, connection: Connection) -> tuple[str, ...]:
        """Return the names of live nodes that take new tablets."""
        living = rows.alive(connection, self._ledger.now_ms(connection))
        return tuple(node.name for node in living if not node.draining)

    def lately(self, connection: Connection) -> tuple[str, ...]:
        """Return names of those that live, or did within `LATELY_MS`, and take new tablets."""
        since_ms = self._ledger.now_ms(connection) - LATELY_MS
        return tuple(node.name for node in rows.alive(connection, since_ms) if not node.draining)

    def all_nodes(self) -> tuple[StorageNodeInfo, ...]:
        def work(connection: Connection) -> tuple[StorageNodeInfo, ...]:
            now_ms = self._ledger.now_ms(connection)
            return tuple(
                copied(StorageNodeInfo, node, alive=node.lease_until_ms > now_ms)
                for node in rows.all_nodes(connection)
            )

        return self._ledger.read("read the storage nodes", work)

    def addresses(self) -> dict[str, str]:
        """Return the addresses by name of nodes that are alive and not suspended."""
        return {
            node.name: node.address
            for node in self.all_nodes()
            if node.alive and self._is_callable(node.name)
        }
