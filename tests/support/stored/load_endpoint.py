"""A front end in this process: its routes over real sockets, storage nodes in memory behind it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
from rtolap.base.users import Users, password_hash
from rtolap.protocols.rest.request import headers
from rtolap.servers.http_server import HttpConnections, HttpServer
from rtolap.stored.frontend.assembly import Assembly, FrontendOptions, Storage
from rtolap.stored.frontend.election import Endpoint
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.records import Partition, Replica, Tablet
from rtolap.stored.stream_load.authentication import Guard
from rtolap.stored.stream_load.ports import Port
from rtolap.stored.stream_load.table_entry import TableEntry

from tests.support.stored.ledgers import open_ledger
from tests.support.twins.storage_nodes import MemoryNodes, MemoryTabletHosts
from tests.support.waiting import patience_s

USER, OTHER_USER, DEFINING_USER, ASKING_USER = "loader", "bert", "dora", "anna"  # with one password
PASSWORD, TOKEN = "open sesame", "a cluster's token"
RIGHTS = {USER: ("load",), OTHER_USER: ("load",), DEFINING_USER: ("define",), ASKING_USER: ()}
NODES = ("n1", "n2", "n3")
_START_TIMEOUT_S = 20.0


class MemoryWriter:
    """A `Writer` straight into `MemoryNodes`; a node that is down gets nothing."""

    def __init__(self, nodes: MemoryNodes, txn_id: int, replicas: Collection[Replica]) -> None:
        self._nodes = nodes
        self._txn_id = txn_id
        self._replicas = list(replicas)
        self._written: set[Partition] = set()

    def add_replicas(self, replicas: Collection[Replica]) -> None:
        self._replicas = list(replicas)

    def write(self, partition: str, bucket: int, batch: pa.RecordBatch) -> None:
        known = {replica.tablet.partition.name: replica.tablet.partition for replica in self._replicas}
        self._written.add(known[partition])
        self._receive(Tablet(known[partition], bucket), batch.to_pylist())

    def finish(self) -> Collection[Partition]:
        for replica in self._replicas:  # the others of a partition that was written to are part of it
            if replica.tablet.partition in self._written:
                self._receive(replica.tablet, [])
        return self._written

    def abort(self) -> None:
        for name, node in self._nodes.nodes.items():
            if node.up:
                self._nodes.abort(name, self._txn_id)

    def _receive(self, tablet: Tablet, rows: list[object]) -> None:
        for replica in self._replicas:
            if replica.tablet == tablet and self._nodes.nodes[replica.node].up:
                self._nodes.receive(replica.node, self._txn_id, tablet, rows)


@dataclass
class LoadEndpoint:
    """An endpoint that runs. `url` is where loads are requested, `body_url` where their bodies go."""

    assembly: Assembly
    ledger: Ledger
    nodes: MemoryNodes
    url: str
    body_url: str

    def rows(self, db: str, table: str) -> list[dict[str, Any]]:
        """Return the visible rows, of each tablet's first replica."""
        found: list[dict[str, Any]] = []
        seen: set[Tablet] = set()
        for name in sorted(self.nodes.nodes):
            for tablet, versions in self.nodes.nodes[name].versions.items():
                partition = tablet.partition
                if (partition.db, partition.table) != (db, table) or tablet in seen:
                    continue
                seen.add(tablet)
                for _, rows in versions:
                    found += rows  # type: ignore[arg-type]
        return found


@contextlib.contextmanager
def load_endpoint(folder: Path, options: FrontendOptions = FrontendOptions()) -> Iterator[LoadEndpoint]:
    """Yield an endpoint that is master of its own ledger."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as closing:
        sockets = [closing.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        url, body_url = (f"http://127.0.0.1:{one.getsockname()[1]}" for one in sockets)
        ledger = closing.enter_context(open_ledger(folder / "ledger.db"))
        nodes = MemoryNodes(NODES)
        hosts = MemoryTabletHosts(NODES)

        def open_writer(txn_id: int, table: TableEntry, partial: bool) -> MemoryWriter:
            return MemoryWriter(nodes, txn_id, table.replicas)

        def addresses(connection: Connection) -> Mapping[str, str]:
            return {name: f"{name}:1" for name in NODES}

        broken: list[str] = []
        assembly = Assembly(
            ledger,
            Endpoint(url, body_url),
            Storage(nodes, hosts, open_writer, lambda connection: NODES, addresses),
            Guard(Users({name: bytes.fromhex(password_hash(PASSWORD)) for name in RIGHTS}, RIGHTS), TOKEN),
            folder / "errors",
            options,
            masters=closing.enter_context(httpx.Client(headers=headers(TOKEN))),
            broken=broken.append,
        )
        assembly.election.run_once()
        assembly.start()
        closing.callback(assembly.stop)
        connections = HttpConnections(assembly.metrics, options.http)
        for one, takes_bodies in zip(sockets, (False, True), strict=True):
            port = Port(assembly.app, takes_bodies=takes_bodies)
            closing.enter_context(_served(port, connections, one))
        yield LoadEndpoint(assembly, ledger, nodes, url, body_url)
        assert not broken, f"threads ended by errors: {broken}"


@contextlib.contextmanager
def _served(app: Any, connections: HttpConnections, one: socket.socket) -> Iterator[None]:
    server = HttpServer(app, connections, lifespan="off")
    thread = threading.Thread(target=server.run, kwargs={"sockets": [one]}, daemon=True)
    thread.start()
    deadline_s = time.monotonic() + patience_s(_START_TIMEOUT_S)
    while not server.started:
        assert thread.is_alive(), "the server has ended"
        assert time.monotonic() < deadline_s
        time.sleep(0.005)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(_START_TIMEOUT_S)
