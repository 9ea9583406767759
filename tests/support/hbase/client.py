"""A small client of HBase: tables through the master, rows through the region servers that have them."""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message
from rtolap.base.closeable import Closeable
from rtolap.base.errors import NotFound, RtolapError, Unavailable
from rtolap.metadata.zookeeper import ZooKeeperStore
from rtolap.sep.hbase import admin_pb2, rpc_pb2
from rtolap.sep.hbase.connection import Connection, error_of
from rtolap.sep.hbase.master import MasterClient
from rtolap.sep.hbase.peers import table_name, table_text
from rtolap.sep.hbase.znodes import HBaseZnodes, ServerName, parse_message

from tests.support.hbase import client_pb2
from tests.support.waiting import SLOWNESS, result_of, until

_META = b"hbase:meta,,1"
_PATIENCE_S = 60.0
_SCAN_ROWS = 1000
_MOVE_AGAIN_S = 5.0
M = TypeVar("M", bound=Message)
T = TypeVar("T")
Row = dict[str, tuple[int, bytes]]  # column → timestamp in ms, value


@dataclass(frozen=True)
class Region:
    """`name`: the whole name, `table,start,id.encoded.`"""

    name: bytes
    info: client_pb2.RegionInfo
    server: ServerName

    @property
    def encoded(self) -> str:
        return self.name.rstrip(b".").rpartition(b".")[2].decode()

    def holds(self, row: bytes) -> bool:
        return self.info.start_key <= row and (not self.info.end_key or row < self.info.end_key)


class HBaseClient(Closeable):
    """Of the HBase whose ZooKeeper is at `address`. Calls wait until regions that move are there again, for
    `patience_s`; 0: a call is sent once, and whether it was done is not known when it fails."""

    def __init__(self, address: str, parent: str = "/hbase", *, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self.store = ZooKeeperStore(address, root="/", session_timeout_s=6.0 * SLOWNESS)
        self.znodes = HBaseZnodes(self.store, parent)
        self.master = MasterClient(self.znodes, timeout_s=_PATIENCE_S)
        self._connections: dict[tuple[str, int, str], Connection] = {}
        self._regions: dict[str, list[Region]] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self.master.close()
        self.store.close()

    # -- tables -------------------------------------------------------------------------------------------

    def create_table(
        self,
        table: str,
        families: Sequence[str] = ("cf",),
        *,
        splits: Sequence[bytes] = (),
        scope: int = 1,
        versions: int = 3,
    ) -> str:
        self._change(
            "CreateTable",
            client_pb2.CreateTableRequest(
                table_schema=_schema(table, families, scope, versions), split_keys=splits
            ),
        )
        return table

    def set_scope(self, table: str, families: Sequence[str], scope: int, versions: int = 3) -> None:
        schema = _schema(table, families, scope, versions)
        self._change(
            "ModifyTable",
            client_pb2.ModifyTableRequest(table_name=schema.table_name, table_schema=schema),
        )

    def disable_table(self, table: str) -> None:
        self._change("DisableTable", client_pb2.TableNameRequest(table_name=table_name(table)))

    def drop_table(self, table: str) -> None:
        request = client_pb2.TableNameRequest(table_name=table_name(table))
        self.disable_table(table)
        self._change("DeleteTable", request)
        self._regions.pop(table, None)

    def truncate_table(self, table: str) -> None:
        self.disable_table(table)
        self._change("truncateTable", client_pb2.TruncateTableRequest(tableName=table_name(table)))
        self._regions.pop(table, None)

    def create_namespace(self, name: str) -> None:
        descriptor = client_pb2.NamespaceDescriptor(name=name.encode())
        self._change("CreateNamespace", client_pb2.CreateNamespaceRequest(namespaceDescriptor=descriptor))

    def regions(self, table: str) -> list[Region]:
        """Return the regions by start key, as hbase:meta has them now; wait for it where it moves."""
        text = table_text(table_name(table)).encode()
        regions = []
        found = self._retrying(
            lambda: self._scan_region(self.znodes.meta_server(), _META, text + b",,", text + b" ,,")
        )
        for cells in found.values():
            if not cells.keys() >= {"info:regioninfo", "info:server", "info:serverstartcode"}:
                continue  # not open anywhere yet, or a truncation deletes it and its state is still written
            info = parse_message(cells["info:regioninfo"][1], client_pb2.RegionInfo, "info:regioninfo")
            if info.offline or info.split:
                continue
            host, _, port = cells["info:server"][1].decode().rpartition(":")
            (start,) = struct.unpack(">q", cells["info:serverstartcode"][1])
            regions.append(Region(_region_name(info), info, ServerName(host, int(port), start)))
        return sorted(regions, key=lambda region: region.info.start_key)

    def move(self, region: Region, server: ServerName) -> None:
        """Return when the region is open there. Asked for again where a recovery has come between."""
        destination = rpc_pb2.ServerName(
            host_name=server.host, port=server.port, start_code=server.start_code
        )
        request = client_pb2.MoveRegionRequest(region=_encoded(region.encoded), dest_server_name=destination)
        table = table_text(region.info.table_name)
        asked_s = 0.0

        def is_there() -> bool:
            nonlocal asked_s
            here = [each.server for each in self.regions(table) if each.encoded == region.encoded]
            if here == [server]:
                return True
            if here and time.monotonic() - asked_s > _MOVE_AGAIN_S:
                asked_s = time.monotonic()
                self._master_call("MoveRegion", request, client_pb2.MoveRegionResponse)
            return False

        until(is_there, f"{region.encoded} on {server}")

    def split(self, region: Region, row: bytes) -> None:
        """Return when the daughters are open."""
        self._change(
            "SplitRegion", client_pb2.SplitTableRegionRequest(region_info=region.info, split_row=row)
        )
        table = table_text(region.info.table_name)
        until(lambda: any(each.info.start_key == row for each in self.regions(table)), "the daughters")

    # -- region servers -----------------------------------------------------------------------------------

    def region_servers(self) -> tuple[ServerName, ...]:
        return self.znodes.region_servers()

    def roll_log(self, server: ServerName) -> None:
        """Begin a new write-ahead log."""
        self._server_call(
            server, "AdminService", "RollWALWriter", client_pb2.RollWALWriterRequest(),
            client_pb2.RollWALWriterResponse,
        )  # fmt: skip

    def stop_region_server(self, server: ServerName) -> None:
        """Return when it has left; it does not come back by itself."""
        request = client_pb2.StopServerRequest(reason="a test")
        self._server_call(server, "AdminService", "StopServer", request, client_pb2.StopServerResponse)
        until(lambda: server not in self.region_servers(), f"{server} has left")

    def shut_down(self) -> None:
        """Have the master and all region servers end in order, as `stop-hbase.sh` does."""
        self._master_call("Shutdown", client_pb2.ShutdownRequest(), client_pb2.ShutdownResponse)

    # -- rows ---------------------------------------------------------------------------------------------

    def write(self, table: str, mutation: client_pb2.MutationProto) -> Row:
        """Make one mutation by itself, and return the result: what an increment or append made."""

        def send(region: Region) -> Row:
            response = self._server_call(
                region.server,
                "ClientService",
                "Mutate",
                client_pb2.MutateRequest(region=_named(region.name), mutation=mutation),
                client_pb2.MutateResponse,
            )
            return _row(response.result)

        return self._patiently(table, mutation.row, send)

    def write_all(
        self, table: str, mutations: Iterable[client_pb2.MutationProto], *, atomic: bool = False
    ) -> None:
        """Write many in one call a region: one WAL edit of many rows. With `atomic`, a region takes all or
        none."""
        left = list(mutations)
        while left:
            first = left[0].row

            def send(region: Region) -> list[client_pb2.MutationProto]:
                here = [mutation for mutation in left if region.holds(mutation.row)]  # noqa: B023
                action = client_pb2.RegionAction(
                    region=_named(region.name),
                    atomic=atomic,
                    action=[
                        client_pb2.Action(index=index, mutation=mutation)
                        for index, mutation in enumerate(here)
                    ],
                )
                response = self._server_call(
                    region.server,
                    "ClientService",
                    "Multi",
                    client_pb2.MultiRequest(regionAction=[action]),
                    client_pb2.MultiResponse,
                )
                _raise_failures(response)
                return [mutation for mutation in left if not region.holds(mutation.row)]  # noqa: B023

            left = self._patiently(table, first, send)

    def scan(self, table: str) -> dict[bytes, Row]:
        """Return all rows, the latest version of each column."""
        rows: dict[bytes, Row] = {}
        start = b""
        while True:

            def read(region: Region) -> tuple[dict[bytes, Row], bytes]:
                part = self._scan_region(region.server, region.name, start, region.info.end_key)  # noqa: B023
                return part, region.info.end_key

            part, start = self._patiently(table, start, read)
            rows |= part
            if not start:
                return rows

    def _scan_region(self, server: ServerName, name: bytes, start: bytes, stop: bytes) -> dict[bytes, Row]:
        rows: dict[bytes, Row] = {}
        request = client_pb2.ScanRequest(
            region=_named(name),
            scan=client_pb2.Scan(start_row=start, stop_row=stop, caching=_SCAN_ROWS),
            number_of_rows=_SCAN_ROWS,
        )
        while True:
            response = self._server_call(server, "ClientService", "Scan", request, client_pb2.ScanResponse)
            for result in response.results:
                if result.cell:
                    rows.setdefault(result.cell[0].row, {}).update(_row(result))
            if not response.more_results or not response.more_results_in_region:
                return rows
            request = client_pb2.ScanRequest(scanner_id=response.scanner_id, number_of_rows=_SCAN_ROWS)

    # -- calling ------------------------------------------------------------------------------------------

    def _retrying(self, act: Callable[[], T]) -> T:
        return result_of(act, Unavailable, timeout_s=self._patience_s, poll_s=0.05)

    def _patiently(self, table: str, row: bytes, act: Callable[[Region], T]) -> T:
        def attempt() -> T:
            try:
                return act(self._region(table, row))
            except Unavailable:
                self._regions.pop(table, None)  # a region that moves is not there for a while
                raise

        return self._retrying(attempt)

    def _region(self, table: str, row: bytes) -> Region:
        if table not in self._regions:
            self._regions[table] = self.regions(table)
        for region in self._regions[table]:
            if region.holds(row):
                return region
        raise Unavailable(f"no region of {table} holds {row!r} now")

    def _change(self, method: str, request: Message) -> None:
        self.master.change(method, request, lambda: False)

    def _master_call(self, method: str, request: Message, kind: type[M]) -> M:
        return self._retrying(
            lambda: self._server_call(self.znodes.master(), "MasterService", method, request, kind)
        )

    def _server_call(
        self, server: ServerName, service: str, method: str, request: Message, kind: type[M]
    ) -> M:
        key = (server.host, server.port, service)
        if key not in self._connections:
            self._connections[key] = Connection(*key)
        return self._connections[key].call(method, request, kind)


def _region_name(info: client_pb2.RegionInfo) -> bytes:
    """Return `table,start,id.` and the MD5 of all before in hex, and a dot."""
    name = b"%s,%s,%d" % (table_text(info.table_name).encode(), info.start_key, info.region_id)
    return name + b"." + hashlib.md5(name).hexdigest().encode() + b"."


def _schema(table: str, families: Sequence[str], scope: int, versions: int) -> admin_pb2.TableSchema:
    attributes = {b"REPLICATION_SCOPE": scope, b"VERSIONS": versions}
    return admin_pb2.TableSchema(
        table_name=table_name(table),
        column_families=[
            admin_pb2.ColumnFamilySchema(
                name=family.encode(),
                attributes=[
                    admin_pb2.BytesBytesPair(first=name, second=str(value).encode())
                    for name, value in attributes.items()
                ],
            )
            for family in families
        ],
    )


def _named(name: bytes) -> client_pb2.RegionSpecifier:
    return client_pb2.RegionSpecifier(type=client_pb2.RegionSpecifier.REGION_NAME, value=name)


def _encoded(name: str) -> client_pb2.RegionSpecifier:
    kind = client_pb2.RegionSpecifier.ENCODED_REGION_NAME
    return client_pb2.RegionSpecifier(type=kind, value=name.encode())


def _row(result: client_pb2.Result) -> Row:
    return {
        f"{cell.family.decode()}:{cell.qualifier.decode()}": (cell.timestamp, cell.value)
        for cell in result.cell
    }


def _raise_failures(response: client_pb2.MultiResponse) -> None:
    for result in response.regionActionResult:
        for failure in (result.exception, *(each.exception for each in result.resultOrException)):
            if failure.name:
                raise _error(failure)


def _error(failure: client_pb2.NameBytesPair) -> RtolapError:
    text = failure.value.decode(errors="replace").partition("\n")[0]
    error = error_of(failure.name.rpartition(".")[2], text, "Multi")
    return Unavailable(str(error)) if isinstance(error, NotFound) else error
