"""Regions of a table and the calls that read rows of them: Multi with Gets, and Scan.

Rows come as cell blocks, which `events.cells` decodes. Every call is one request: the caller looks up a
region that has moved, and tries again.

A region's *read point* is the largest sequence id whose edits a read sees. HBase ships an edit once its log
is on disk, which is a moment before readers see it. A read whose read point is at least the edit's sequence
id has the edit in it.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message

from rtolap.base.closeable import Closeable
from rtolap.base.errors import RtolapError, Unavailable
from rtolap.sep.hbase.connection import HIGH_PRIORITY, KEY_VALUE_CODEC, Connection, error_of
from rtolap.sep.hbase.peers import table_name, table_text
from rtolap.sep.hbase.rows_pb2 import (
    Action,
    Column,
    Get,
    MultiRequest,
    MultiResponse,
    NameBytesPair,
    RegionAction,
    RegionInfo,
    RegionSpecifier,
    Scan,
    ScanRequest,
    ScanResponse,
)
from rtolap.sep.hbase.znodes import HBaseZnodes, ServerName, parse_message

_SERVICE = "ClientService"
_META = b"hbase:meta,,1"
_META_ROWS = 1000
_ROW_PRIORITY = 0
_SCAN_BYTES = 8 << 20  # of one answer: rows may be wide
_TABLE_STATE, _ENABLED = (b"table", b"state"), b"\x08\x00"
_INFO, _SERVER, _START_CODE = (b"info", b"regioninfo"), (b"info", b"server"), (b"info", b"serverstartcode")
M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Region:
    """A region and the server that serves it.

    Attributes:
        name: the whole name, `table,start,id.encoded.`; a WAL edit names the region by `encoded`.
    """

    name: bytes
    start: bytes
    end: bytes
    server: ServerName

    @property
    def encoded(self) -> str:
        return self.name.rstrip(b".").rpartition(b".")[2].decode()


@dataclass(frozen=True, slots=True)
class RowCells:
    """The cells of rows that were read.

    Attributes:
        counts: the number of cells of each row in the block, in the order of the rows.
        exists: whether each row has a cell, where the request was for existence only.
    """

    counts: list[int]
    block: bytes
    exists: list[bool]


@dataclass(frozen=True, slots=True)
class ScannedRows:
    """Rows of a scan.

    Attributes:
        is_end: True if the region has no further row.
    """

    counts: list[int]
    block: bytes
    is_end: bool


class RegionClient(Closeable):
    """Calls of region servers of the HBase whose nodes `znodes` reads. Regions are remembered until `forget`.

    Unavailable: a server does not answer, or a region is on its way; NotFound: a family that the table lacks;
    TooLarge: more than one answer may hold.
    """

    def __init__(self, znodes: HBaseZnodes, *, timeout_s: float = 30.0) -> None:
        self._znodes = znodes
        self._timeout_s = timeout_s
        self._connections: dict[tuple[ServerName, str | None], Connection] = {}
        self._regions: dict[str, list[Region]] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def regions(self, table: str) -> list[Region]:
        """Return the regions by start key; none if the table does not exist or is being truncated.

        Unavailable: the table exists and none of its regions is open, as while its only one splits.
        """
        if not self._regions.get(table):  # a table that was not there may be by now
            self._regions[table] = self._meta_regions(table)
        return self._regions[table]

    def is_enabled(self, table: str) -> bool:
        """Return False for a table that is disabled, on its way to or from that, or gone."""
        text = table_text(table_name(table)).encode()
        request = ScanRequest(
            region=_named(_META),
            scan=Scan(start_row=text, stop_row=text + b"\0", caching=1),
            number_of_rows=1,
            close_scanner=True,
        )
        response, _ = self._call(self._znodes.meta_server(), "Scan", request, ScanResponse, codec=None)
        cells = {(cell.family, cell.qualifier): cell.value for row in response.results for cell in row.cell}
        return cells.get(_TABLE_STATE) == _ENABLED

    def region_of(self, table: str, row: bytes) -> Region | None:
        """Return None where the table has no regions. Unavailable: the row's region is on its way."""
        regions = self.regions(table)
        if not regions:
            return None
        region = regions[max(0, bisect_right(regions, row, key=lambda each: each.start) - 1)]
        if region.start <= row and (not region.end or row < region.end):
            return region
        raise Unavailable(f"no region of {table} holds row {row!r} now", action="try again")

    def forget(self, table: str) -> None:
        self._regions.pop(table, None)

    def get(
        self,
        server: ServerName,
        rows: Sequence[tuple[Region, Sequence[bytes]]],
        columns: Sequence[Column],
        *,
        existence_only: bool = False,
    ) -> RowCells:
        """Read rows of regions of one server in one call: of each column its newest version."""
        pattern = Get(column=columns, max_versions=1)
        if existence_only:
            pattern.existence_only = True
        request = MultiRequest()
        for region, of_region in rows:
            action = RegionAction(region=_named(region.name))
            for index, row in enumerate(of_region):
                get = Get()
                get.CopyFrom(pattern)
                get.row = row
                action.action.append(Action(index=index, get=get))
            request.regionAction.append(action)
        response, block = self._call(server, "Multi", request, MultiResponse)
        counts: list[int] = []
        exists: list[bool] = []
        for (_, of_region), answered in zip(rows, response.regionActionResult, strict=True):
            _raise_failure(answered.exception)
            results = sorted(answered.resultOrException, key=lambda each: each.index)
            if len(results) != len(of_region):
                raise Unavailable(
                    f"{server} left rows out of its answer", expected=len(of_region), found=len(results)
                )
            for each in results:
                _raise_failure(each.exception)
                counts.append(each.result.associated_cell_count)
                exists.append(each.result.exists)
        return RowCells(counts, block, exists)

    def read_point(self, region: Region, row: bytes) -> int:
        """Return a sequence id of the region: what is read from now on has all edits up to it."""
        scan = Scan(start_row=row, stop_row=row + b"\0", max_versions=1, store_limit=1)
        response, _ = self._call(
            region.server,
            "Scan",
            ScanRequest(region=_named(region.name), scan=scan, number_of_rows=1, close_scanner=True),
            ScanResponse,
        )
        return response.mvcc_read_point

    def scan(
        self, region: Region, start: bytes, stop: bytes, columns: Sequence[Column], rows: int
    ) -> ScannedRows:
        """Read so many rows at most, from `start` to before `stop` (empty: the end of the region), in one
        call."""
        scan = Scan(
            start_row=start,
            stop_row=stop,
            column=columns,
            max_versions=1,
            caching=rows,
            max_result_size=_SCAN_BYTES,
        )
        request = ScanRequest(region=_named(region.name), scan=scan, number_of_rows=rows, close_scanner=True)
        response, block = self._call(region.server, "Scan", request, ScanResponse)
        counts = list(response.cells_per_result)
        return ScannedRows(counts, block, is_end=not counts)

    def _meta_regions(self, table: str) -> list[Region]:
        text = table_text(table_name(table)).encode()
        server = self._znodes.meta_server()
        request = ScanRequest(
            region=_named(_META),
            scan=Scan(start_row=text + b",,", stop_row=text + b" ,,", caching=_META_ROWS),
            number_of_rows=_META_ROWS,
        )
        regions: list[Region] = []
        known = 0
        while True:
            response, _ = self._call(server, "Scan", request, ScanResponse, codec=None)
            known += len(response.results)
            for result in response.results:
                cells = {(cell.family, cell.qualifier): cell.value for cell in result.cell}
                regions += _regions_of(cells)
            if not response.more_results or not response.more_results_in_region:
                break
            request = ScanRequest(scanner_id=response.scanner_id, number_of_rows=_META_ROWS)
        if known and not regions:
            raise Unavailable(f"no region of {table} is open now", action="try again")
        return sorted(regions, key=lambda each: each.start)

    def _call(
        self,
        server: ServerName,
        method: str,
        request: Message,
        kind: type[M],
        *,
        codec: str | None = KEY_VALUE_CODEC,
    ) -> tuple[M, bytes]:
        key = (server, codec)
        if key not in self._connections:
            self._connections[key] = Connection(
                server.host,
                server.port,
                _SERVICE,
                codec=codec,
                priority=HIGH_PRIORITY if codec is None else _ROW_PRIORITY,
                timeout_s=self._timeout_s,
            )
        return self._connections[key].call_with_cells(method, request, kind)


def _regions_of(cells: Mapping[tuple[bytes, bytes], bytes]) -> list[Region]:
    """Return the region of a row of hbase:meta; none where it is not open, or daughters have replaced it.

    A row that is being written or deleted may lack any of the columns.
    """
    if not all(cells.get(column) for column in (_INFO, _SERVER, _START_CODE)):
        return []
    info = parse_message(cells[_INFO], RegionInfo, "info:regioninfo")
    if info.offline or info.split or info.replica_id:
        return []
    host, _, port = cells[_SERVER].decode().rpartition(":")
    (start_code,) = struct.unpack(">q", cells[_START_CODE])
    server = ServerName(host, int(port), start_code)
    return [Region(region_name(info), info.start_key, info.end_key, server)]


def region_name(info: RegionInfo) -> bytes:
    """Return a region's name: `table,start,id.`, the MD5 of all before in hexadecimal, and a dot."""
    name = b"%s,%s,%d" % (table_text(info.table_name).encode(), info.start_key, info.region_id)
    return name + b"." + hashlib.md5(name, usedforsecurity=False).hexdigest().encode() + b"."


def _named(name: bytes) -> RegionSpecifier:
    return RegionSpecifier(type=RegionSpecifier.REGION_NAME, value=name)


def _raise_failure(failure: NameBytesPair) -> None:
    if failure.name:
        raise _error(failure)


def _error(failure: NameBytesPair) -> RtolapError:
    text = failure.value.decode(errors="replace").partition("\n")[0]
    return error_of(failure.name.rpartition(".")[2], text, "Multi")
