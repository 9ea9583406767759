"""front ends, a ledger and storage nodes in this process, stepped: no sockets, nothing runs by itself.

The endpoints are whole (`Assembly`: routes, catalogue, transactions, publishing, upkeep), and so are the
nodes (tablets in a folder); a client's requests go straight into the routes. An endpoint dies as a process
does: from that moment nothing of it reaches the ledger or a node any more, whatever its threads still do.

What goes astray between endpoint, ledger and nodes is drawn from `chance`, always in one order: calls of an
endpoint to nodes come one after the other.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any, Protocol, TypeVar

import httpx
import pyarrow as pa
import sqlalchemy as sa
from rtolap.base.closeable import Closeable
from rtolap.base.errors import Unavailable
from rtolap.base.users import Users, password_hash
from rtolap.model.stored.table import StoredTable
from rtolap.protocols.rest.leader_finder import LeaderFinder
from rtolap.protocols.rest.request import headers
from rtolap.protocols.storage import messages as wire
from rtolap.protocols.storage.client import RowStream, StorageNode
from rtolap.protocols.stored_tables.messages import ColumnChange
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.expect_continue import PutAnswer
from rtolap.protocols.stream_load.front_ends import FrontEnds
from rtolap.protocols.stream_load.messages import LoadAnswer
from rtolap.stored.engine.disk import OpenFile, RealDisk
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.frontend.assembly import Assembly, FrontendOptions, Storage
from rtolap.stored.frontend.election import Endpoint
from rtolap.stored.frontend.http.nodes import nodes_router
from rtolap.stored.frontend.storage_nodes import StorageNodes
from rtolap.stored.frontend.transactions.participants import MissedVersion
from rtolap.stored.frontend.transactions.remote_participants import RemoteParticipants, RemoteTabletHosts
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore import transactions as transaction_rows
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.records import Partition, Tablet
from rtolap.stored.node.node import LocalNode
from rtolap.stored.node.settings import StorageSettings
from rtolap.stored.stream_load.authentication import Guard
from rtolap.stored.stream_load.body_pipe import BodyPipe
from rtolap.stored.stream_load.committing import Committing
from rtolap.stored.stream_load.decision_client import DecisionClient
from rtolap.stored.stream_load.distribution import Tables
from rtolap.stored.stream_load.error_files import ErrorFiles
from rtolap.stored.stream_load.load import Loads, LoadServices
from rtolap.stored.stream_load.node_directory import NodeDirectory
from rtolap.stored.stream_load.node_sender import RowNodes
from rtolap.stored.stream_load.ports import Port
from rtolap.stored.stream_load.request import LoadRequest
from rtolap.stored.stream_load.table_entry import TableEntry
from rtolap.stored.stream_load.writer import LoadWriter
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from tests.support.stored.storage_nodes import InProcessNodes
from tests.support.stored.transaction_runs import Crash, FaultyLedger
from tests.support.twins.clock import ManualClock

T = TypeVar("T")
Row = dict[str, Any]

NODES = ("n1", "n2", "n3")
USER, PASSWORD, TOKEN = "loader", "open sesame", "a cluster's token"
_HELD_S_MAX = 600.0  # of real time: a load that is held is let go long before
_SETTLING_ROUNDS_MAX = 4


class Chance(Protocol):
    def __call__(self, *kinds: str, often: float = 1.0) -> str | None:
        """Return one of these, or nothing."""
        ...


class UnsyncedDisk(RealDisk):
    """Nobody cuts the power here."""

    def create(self, path: Path) -> OpenFile:
        return _UnsyncedFile(super().create(path))

    def append(self, path: Path, data: bytes) -> None:
        with path.open("ab") as file:
            file.write(data)

    def truncate(self, path: Path, length_bytes: int) -> None:
        os.truncate(path, length_bytes)

    def sync_folder(self, path: Path) -> None:
        """Do nothing."""


class _UnsyncedFile:
    def __init__(self, file: OpenFile) -> None:
        self.write, self.close = file.write, file.close

    def sync(self) -> None:
        """Do nothing."""


class InProcessFrontEnds(FrontEnds):
    """Its requests go into the endpoints of a cluster in this process."""

    def __init__(self, urls: Iterable[str], http: httpx.Client) -> None:
        super().__init__(urls, USER, PASSWORD)
        self.http.close()
        self.http = http

    def close(self) -> None:
        """Do nothing: the way to the endpoints is the cluster's."""

    def put(
        self, path: str, headers: Mapping[str, str], body: bytes | Iterable[bytes], **unused: Any
    ) -> PutAnswer:
        answer = self.request("PUT", path, headers=dict(headers), content=body)
        return PutAnswer(answer.status_code, "", answer.content)


class InProcessClient(StreamLoadClient):
    def __init__(self, urls: Iterable[str], http: httpx.Client) -> None:
        super().__init__(urls, USER, PASSWORD)
        self._front_ends.close()
        self._front_ends = InProcessFrontEnds(urls, http)


class EndpointLedger(FaultyLedger):
    """The ledger as one endpoint reaches it: not at all once `dead`. It dies at a commit, before or after it
    is durable."""

    dead = False

    @classmethod
    def beside(cls, ledger: Ledger) -> EndpointLedger:
        """Return a ledger on the same connection."""
        made = cls.__new__(cls)
        made.__dict__.update({name: it for name, it in ledger.__dict__.items() if name != "fault"})
        return made

    def read(self, what: str, work: Callable[[Connection], T]) -> T:
        self._check(what)
        return super().read(what, work)

    def write(
        self, what: str, kind: type[T], work: Callable[[Connection], T], *, key: str | None = None
    ) -> T:
        self._check(what)
        return super().write(what, kind, work, key=key)

    def _commit(self, transaction: sa.RootTransaction) -> None:
        try:
            super()._commit(transaction)
        except Crash:
            self.dead = True
            raise Unavailable("the endpoint has died at a commit") from None

    def _check(self, what: str) -> None:
        if self.dead:
            raise Unavailable(f"{what}: the endpoint is dead")


class FaultyParticipants(RemoteParticipants):
    """Calls to nodes are lost, or their answers, or come twice; or the endpoint dies at one."""

    def __init__(self, ledger: EndpointLedger, nodes: StorageNodes, chance: Chance) -> None:
        super().__init__(ledger, nodes)
        self._endpoint_ledger, self._chance = ledger, chance

    def prepare(self, node: str, txn_id: int, tablets: Collection[Tablet]) -> frozenset[Tablet]:
        ask = super().prepare
        return self._around(lambda: ask(node, txn_id, tablets))

    def publish(
        self, node: str, txn_id: int, versions: Mapping[Partition, int], tablets: Collection[Tablet]
    ) -> frozenset[Tablet]:
        ask = super().publish
        return self._around(lambda: ask(node, txn_id, versions, tablets))

    def catch_up(
        self, node: str, tablet: Tablet, missed: Collection[MissedVersion], sources: Collection[str]
    ) -> int:
        ask = super().catch_up
        return self._around(lambda: ask(node, tablet, missed, sources))

    def abort(self, node: str, txn_id: int) -> None:
        tell = super().abort
        self._around(lambda: tell(node, txn_id))

    def _around(self, call: Callable[[], T]) -> T:
        kinds = ("node call lost", "node answer lost", "node called twice", "endpoint dies at a node call")
        kind = self._chance(*kinds)
        if kind == "node call lost":
            raise Unavailable("lost")
        answer = call()
        if kind == "node answer lost":
            raise Unavailable("no answer")
        if kind == "node called twice":
            answer = call()
        if kind == "endpoint dies at a node call":
            self._endpoint_ledger.dead = True
            raise Unavailable("the endpoint has died at a call")
        return answer


@dataclass
class Gate:
    """A load that comes here waits until it is released."""

    reached: Event = field(default_factory=Event)
    released: Event = field(default_factory=Event)


class _ToOtherEndpoints(httpx.BaseTransport):
    """Requests of one endpoint to the one that is master. They are lost, or their answers, or come twice.
    None leaves an endpoint that is dead."""

    def __init__(self, cluster: InProcessCluster, ledger: EndpointLedger | InProcessDoor) -> None:
        self._cluster, self._ledger = cluster, ledger

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        kind = self._cluster.chance(
            "decision lost", "decision answer lost", "decision asked twice", often=0.3
        )
        if self._ledger.dead:
            raise httpx.ConnectError("the endpoint that asks is dead")
        if kind == "decision lost":
            raise httpx.ConnectError("the request is lost")
        response = self._cluster.transport.handle_request(request)
        if kind == "decision answer lost":
            raise httpx.ReadError("the answer is lost")
        if kind == "decision asked twice":
            response = self._cluster.transport.handle_request(request)
        if self._ledger.dead:
            raise httpx.ReadError("the endpoint that asks has died")
        return response


class InProcessEndpoint:
    """A start of an endpoint's process."""

    def __init__(self, cluster: InProcessCluster, number: int) -> None:
        self._cluster = cluster
        self.here = Endpoint(f"http://endpoint-{number}:1", f"http://endpoint-{number}:2")
        self.ledger = EndpointLedger.beside(cluster.ledger)
        self.ledger.fault = lambda: cluster.chance(
            "endpoint crash before", "endpoint crash after", "endpoint unacknowledged", often=0.3
        )
        clock = cluster.clock
        self._nodes = StorageNodes(self.ledger, self, now_s=clock.monotonic_s)
        participants = FaultyParticipants(self.ledger, self._nodes, cluster.chance)
        storage = Storage(
            participants,
            RemoteTabletHosts(self._nodes),
            self._open_writer,
            self._nodes.open,
            lambda connection: {name: name for name in self._nodes.alive(connection)},
            self._nodes.lately,
            tablets=participants.tablets,
        )
        options = FrontendOptions(loads_max=4, publish_timeout_s=0.0, node_calls_max=1, election_wait_s=0.0)
        self.assembly = Assembly(
            self.ledger,
            self.here,
            storage,
            cluster.guard,
            cluster.folder / "errors" / str(number),
            options,
            masters=httpx.Client(transport=_ToOtherEndpoints(cluster, self.ledger), headers=headers(TOKEN)),
            own_routes=(nodes_router(self._nodes, cluster.guard.token),),
            broken=cluster.broken.append,
        )
        self.assembly.visibility.wake = self._publish
        self.ports = {bodies: Port(self.assembly.app, takes_bodies=bodies) for bodies in (False, True)}

    def at(self, address: str) -> StorageNode:
        """Return a storage node, as this endpoint reaches it."""
        if self.ledger.dead:
            raise Unavailable("the endpoint is dead")
        return self._cluster.nodes.at(address)

    def put(self, node: str, head: wire.PutHead, columns: pa.Schema) -> RowStream:
        return self._nodes.put(node, head, columns)

    def stands_still(self, node: str) -> bool:
        return self._nodes.stands_still(node)

    def close(self) -> None:
        self.ledger.dead = True
        self._nodes.close()

    def _publish(self) -> None:
        """Publish at once for those who wait for visible rows, unless that comes later."""
        if self._cluster.chance("published late") is None:
            self.assembly.visibility.publish()

    def _open_writer(self, txn_id: int, table: TableEntry, partial: bool) -> LoadWriter:
        return self._cluster.open_writer(self, txn_id, table, partial)


class InProcessDoor:
    """A storage node's process that takes bodies. Once `dead`, nothing of it reaches others."""

    def __init__(self, cluster: InProcessCluster, folder: Path) -> None:
        self.dead = False
        self._cluster = cluster
        self._http = httpx.Client(transport=_ToOtherEndpoints(cluster, self), headers=headers(TOKEN))
        decisions = DecisionClient(LeaderFinder(cluster.urls), self._http, retry_s=0.0)
        self._nodes = NodeDirectory(decisions.storage_nodes, self, now_s=cluster.clock.monotonic_s)
        self._loads = Loads(
            LoadServices(
                Committing(decisions, decisions, publish_timeout_s=0.0),
                Tables(decisions, self._open_writer),
                ErrorFiles(folder, "http://door:1"),
            )
        )

    def load(self, request: LoadRequest, body: bytes) -> LoadAnswer:
        """Run a load whose body has come whole. Raises Unavailable where the process has died meanwhile."""
        loop = asyncio.new_event_loop()
        pipe = BodyPipe(loop)
        loop.run_until_complete(pipe.put(body))
        loop.close()
        pipe.end()
        answer = self._loads.run(request, pipe)
        if self.dead:
            raise Unavailable("the process has died")
        return answer

    def at(self, address: str) -> StorageNode:
        return self._cluster.nodes.at(address)

    def put(self, node: str, head: wire.PutHead, columns: pa.Schema) -> RowStream:
        if self.dead:
            raise Unavailable("the process is dead")
        return self._nodes.put(node, head, columns)

    def stands_still(self, node: str) -> bool:
        return not self.dead and self._nodes.stands_still(node)

    def close(self) -> None:
        self.dead = True
        self._nodes.close()

    def _open_writer(self, txn_id: int, table: TableEntry, partial: bool) -> LoadWriter:
        return self._cluster.open_writer(self, txn_id, table, partial)


class _SomeNodes:
    """A `RowNodes` in which rows to some nodes are lost."""

    def __init__(self, endpoint: RowNodes, lost: Collection[str]) -> None:
        self._endpoint, self._lost = endpoint, lost

    def put(self, node: str, head: wire.PutHead, columns: pa.Schema) -> RowStream:
        if node in self._lost:
            raise Unavailable(f"node {node}: the connection broke")
        return self._endpoint.put(node, head, columns)

    def stands_still(self, node: str) -> bool:
        return self._endpoint.stands_still(node)


class InProcessCluster(Closeable):
    """Two endpoints, of which one is master, and three nodes. `endpoints` by number: None is one that is
    down.

    `gate`: the next load waits there before its rows go to nodes. `refusing`: nodes that take no rows.
    `broken`: what an endpoint's duty ended by, which must stay empty.
    """

    def __init__(self, ledger: Ledger, clock: ManualClock, chance: Chance) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="rtolap-in-process-")
        self.folder = Path(self._temporary.name)
        self.ledger, self.clock, self.chance = ledger, clock, chance
        self.guard = Guard(Users({USER: bytes.fromhex(password_hash(PASSWORD))}, {USER: ("load",)}), TOKEN)
        self.broken: list[str] = []
        self.gate: Gate | None = None
        self.refusing: frozenset[str] = frozenset()
        settings = StorageSettings(disk_free_bytes_min=0, tablet=TabletSettings(compaction_files_min=3))
        self.nodes = InProcessNodes(self.folder, NODES, settings, UnsyncedDisk())
        self._own_ledger = EndpointLedger.beside(ledger)
        self._heartbeats = StorageNodes(self._own_ledger, self.nodes, now_s=clock.monotonic_s)
        self.beat()
        self.endpoints: list[InProcessEndpoint | None] = [
            InProcessEndpoint(self, number) for number in range(2)
        ]
        self.run_once()
        self._http = TestClient(self._serve, follow_redirects=False)
        self._http.__enter__()
        self.transport: httpx.BaseTransport = self._http._transport
        self.urls = [f"http://endpoint-{number}:1" for number in range(2)]
        self.client = InProcessClient(self.urls, self._http)

    def close(self) -> None:
        self._http.__exit__()
        for endpoint in self.endpoints:
            if endpoint is not None:
                endpoint.close()
        self._heartbeats.close()
        self.nodes.close()
        self._temporary.cleanup()

    def beat(self) -> None:
        """Send the heartbeats of all nodes that are up."""
        for name, node in self.nodes.nodes.items():
            beat = wire.Heartbeat(node.folder.node_id, name, node.folder.free_bytes())
            self._heartbeats.heartbeat(name, beat)

    def run_once(self) -> None:
        """Run every duty of every endpoint that lives, once: an endpoint that is not master has only to look
        for the master."""
        for endpoint in self.living():
            if endpoint.assembly.election.run_once():
                endpoint.assembly.run_once()
        assert not self.broken, self.broken

    def living(self) -> list[InProcessEndpoint]:
        return [endpoint for endpoint in self.endpoints if endpoint is not None and not endpoint.ledger.dead]

    def master(self) -> InProcessEndpoint | None:
        """Return one that believes to be."""
        return next((endpoint for endpoint in self.living() if endpoint.assembly.election.leading), None)

    def kill_endpoint(self, number: int) -> None:
        endpoint, self.endpoints[number] = self.endpoints[number], None
        if endpoint is not None:
            endpoint.close()

    def start_endpoint(self, number: int) -> None:
        """Start an endpoint anew, where it is down or has died; its duties have been done once when requests
        come."""
        self.kill_endpoint(number)
        endpoint = self.endpoints[number] = InProcessEndpoint(self, number)
        endpoint.assembly.run_once()

    def heal(self) -> None:
        """Bring everybody up, and have what was pending sent or caught up."""
        for name in NODES:
            if name not in self.nodes.nodes:
                self.nodes.start(name)
        self.beat()
        for number, endpoint in enumerate(self.endpoints):
            if endpoint is None or endpoint.ledger.dead:
                self.start_endpoint(number)
        for _ in range(_SETTLING_ROUNDS_MAX):
            self.run_once()
            if not self._own_ledger.read("read who lags", partition_rows.lagging):
                return

    def open_writer(self, nodes: RowNodes, txn_id: int, table: TableEntry, partial: bool) -> LoadWriter:
        """Return the writer of a load in one process, which waits at the gate first."""
        gate, self.gate = self.gate, None
        if gate is not None:
            gate.reached.set()
            gate.released.wait(_HELD_S_MAX)
        lost = {node for node in NODES if self.chance("rows of a node lost")} | self.refusing
        some = _SomeNodes(nodes, lost)
        return LoadWriter(some, txn_id, table.table_id, table.schema, table.replicas, partial=partial)

    def put(self, number: int, path: str, headers: Mapping[str, str], body: bytes) -> httpx.Response:
        """Put a body at the port for bodies of one endpoint. Raises httpx.TransportError where it dies."""
        url = f"http://endpoint-{number}:2{path}"
        response: httpx.Response = self._http.put(
            url, content=body, headers=dict(headers), auth=(USER, PASSWORD)
        )
        return response

    def create_table(self, definition: StoredTable) -> None:
        self._leading().assembly.catalogue.create_table(definition)

    def change_columns(self, db: str, table: str, change: ColumnChange) -> None:
        self._leading().assembly.catalogue.change_columns(db, table, (change,))

    def compact(self, node: LocalNode) -> int:
        """Compact as far as there is something to do; return the number of runs."""
        before = node.compactor.runs
        for slot, _ in node._slots.open_tablets():
            node.compactor.compact(slot)
        return node.compactor.runs - before

    def labels(self, db: str) -> dict[str, str]:
        """Return the state of the latest transaction of each label."""

        def work(connection: Connection) -> dict[str, str]:
            found = transaction_rows.find_like(connection, db, "%")
            return {each.label: each.state.value for each in reversed(found)}

        return self._own_ledger.read("read labels", work)

    def rows(self, db: str, table: str) -> list[Row]:
        """Return the visible rows, read from every replica: all of one tablet must hold the same."""
        entry = self._leading().assembly.catalogue.table(db, table)
        versions = self._own_ledger.read(
            "read versions", lambda connection: partition_rows.versions_of(connection, db, table)
        )
        found: dict[wire.TabletId, list[Row]] = {}
        for replica in entry.replicas:
            part = replica.tablet.partition
            tablet = wire.TabletId(
                entry.table_id, db, table, part.name, replica.tablet.bucket, part.incarnation
            )
            request = wire.ScanRequest(tablet, entry.schema, versions[part.name].visible)
            stream = self.nodes.at(replica.node).scan(request)
            rows = sorted(pa.Table.from_batches(list(stream), stream.schema).to_pylist(), key=repr)
            others = found.setdefault(tablet, rows)
            assert rows == others, f"replicas of {tablet} differ: {rows} on {replica.node}, else {others}"
        return [row for rows in found.values() for row in rows]

    def check_settled(self) -> None:
        """Check that no replica lags, and no node holds rows of which nobody knows."""
        assert not self._own_ledger.read("read who lags", partition_rows.lagging)
        for name, node in self.nodes.nodes.items():
            status = node.status()
            left = [tablet for tablet in status.tablets if tablet.prepared or tablet.stopped]
            assert (left, status.loading, dict(status.broken)) == (
                [],
                (),
                {},
            ), f"node {name} holds what nobody knows of, or has broken tablets"

    def _leading(self) -> InProcessEndpoint:
        """Return the master, sure of it."""
        for endpoint in self.living():
            if endpoint.assembly.election.run_once():
                return endpoint
        raise Unavailable("no front end is master")

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        host, port = scope["server"]
        endpoint = self.endpoints[int(host.removeprefix("endpoint-"))]
        if endpoint is None or endpoint.ledger.dead:
            raise httpx.ConnectError(f"{host} is down")
        await endpoint.ports[port == 2](scope, receive, send)
        if endpoint.ledger.dead:
            raise httpx.ReadError(f"{host} has died")
