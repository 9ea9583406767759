"""Storage nodes in this process: real tablets in a folder, without Flight between."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
from rtolap.base.errors import Unavailable
from rtolap.protocols.storage import messages as wire
from rtolap.protocols.storage.client import RowStream
from rtolap.stored.engine.disk import Disk
from rtolap.stored.metastore.records import Partition, Replica, Tablet
from rtolap.stored.node.node import LocalNode
from rtolap.stored.node.settings import StorageSettings


class InProcessNodes:
    """Nodes by name, which is their address too; a `RowNodes`, and `at` is what `StorageNodes` wants.

    `stop` and `start` end and begin a node with what it has on its disk; a stopped one is Unavailable. Those
    in `still` are said to stand still.
    """

    def __init__(
        self,
        folder: Path,
        names: Collection[str],
        settings: StorageSettings | None = None,
        disk: Disk | None = None,
    ) -> None:
        self._folder, self._settings, self._disk = folder, settings, disk
        self.nodes: dict[str, LocalNode] = {}
        self.still: set[str] = set()
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        self.nodes[name] = LocalNode(name, self._folder / name, self.at, self._settings, self._disk)

    def stop(self, name: str) -> None:
        self.nodes.pop(name).close()

    def at(self, address: str) -> LocalNode:
        if address not in self.nodes:
            raise Unavailable(f"node {address} is down")
        return self.nodes[address]

    def put(self, node: str, head: wire.PutHead, columns: pa.Schema) -> RowStream:
        return self.at(node).put(head, columns)

    def stands_still(self, node: str) -> bool:
        return node in self.still

    def close(self) -> None:
        for name in list(self.nodes):
            self.stop(name)


def replicas_of(tablets: Collection[wire.TabletId], nodes: Collection[str]) -> tuple[Replica, ...]:
    """Return every tablet on every node, as the ledger says it."""
    return tuple(
        Replica(
            Tablet(Partition(each.db, each.table, each.partition, each.incarnation), each.bucket), node, 0
        )
        for each in tablets
        for node in nodes
    )
