"""A table without open regions is not one that is gone: its rows are not to be taken for deleted."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from google.protobuf.message import Message
from rtolap.base.errors import NotFound, Unavailable
from rtolap.sep.hbase.peers import table_name
from rtolap.sep.hbase.regions import RegionClient
from rtolap.sep.hbase.rows_pb2 import (
    Cell,
    Column,
    MultiResponse,
    NameBytesPair,
    RegionActionResult,
    RegionInfo,
    Result,
    ResultOrException,
    ScanResponse,
)
from rtolap.sep.hbase.znodes import HBaseZnodes, ServerName

from tests.support.twins.metadata import MemoryEnsemble, MemoryStore


class Client(RegionClient):
    """Answers of hbase:meta and of Multi, as they are given."""

    def __init__(self) -> None:
        super().__init__(HBaseZnodes(MemoryStore(MemoryEnsemble()), "/hbase"))
        self._znodes.meta_server = lambda: ServerName("meta", 1, 1)  # type: ignore[method-assign]
        self.meta: list[Result] = []
        self.multi = MultiResponse()
        self.scans = 0

    def _call(self, server: ServerName, method: str, request: Message, kind: Any, **_: Any) -> Any:
        if method == "Scan":
            self.scans += 1
            return ScanResponse(results=self.meta, more_results=False), b""
        return self.multi, b""


def row(start: bytes, end: bytes, server: str = "one:16020", **flags: bool) -> Result:
    info = RegionInfo(region_id=7, table_name=table_name("t"), start_key=start, end_key=end, **flags)
    cells = [Cell(family=b"info", qualifier=b"regioninfo", value=b"PBUF" + info.SerializeToString())]
    if server:
        cells.append(Cell(family=b"info", qualifier=b"server", value=server.encode()))
        cells.append(Cell(family=b"info", qualifier=b"serverstartcode", value=struct.pack(">q", 5)))
    return Result(cell=cells)


def test_a_row_finds_its_region() -> None:
    client = Client()
    client.meta = [row(b"m", b""), row(b"", b"m", "two:1"), row(b"", b"", offline=True, split=True)]
    for key, start in ((b"a", b""), (b"m", b"m"), (b"z", b"m")):
        region = client.region_of("t", key)
        assert region is not None
        assert (region.start, len(region.encoded)) == (start, 32)
    assert client.scans == 1
    client.forget("t")
    client.region_of("t", b"a")
    assert client.scans == 2


def test_regions_that_are_not_open_are_unavailable_and_a_table_that_is_gone_has_none() -> None:
    client = Client()
    client.meta = [row(b"", b"", offline=True, split=True), row(b"", b"m", ""), row(b"m", b"", "")]
    with pytest.raises(Unavailable, match="no region of t is open"):
        client.region_of("t", b"a")
    client.meta = [row(b"", b"m")]
    with pytest.raises(Unavailable, match="no region of t holds"):
        client.region_of("t", b"z")
    client.forget("t")
    client.meta = []
    assert client.region_of("t", b"a") is None


@pytest.mark.parametrize("kept", range(7))
def test_a_row_that_lacks_any_of_its_columns_is_of_no_open_region(kept: int) -> None:
    """As one that a truncation deletes while its state is written."""
    whole = row(b"m", b"")
    client = Client()
    client.meta = [
        row(b"", b"m"),
        Result(cell=[cell for number, cell in enumerate(whole.cell) if kept >> number & 1]),
    ]
    region = client.region_of("t", b"a")
    assert region is not None
    assert (region.start, region.end) == (b"", b"m")
    with pytest.raises(Unavailable, match="no region of t holds"):
        client.region_of("t", b"z")


def test_a_table_that_is_made_again_is_found() -> None:
    client = Client()
    assert client.region_of("t", b"a") is None
    client.meta = [row(b"", b"")]
    assert client.region_of("t", b"a") is not None


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("java_class", "error"),
    [
        ("org.apache.hadoop.hbase.NotServingRegionException", Unavailable),
        ("org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException", NotFound),
    ],
)
def test_a_failure_within_an_answer_is_raised(java_class: str, error: type[Exception], whole: bool) -> None:
    client = Client()
    client.meta = [row(b"", b"")]
    region = client.region_of("t", b"a")
    assert region is not None
    failure = NameBytesPair(name=java_class, value=b"why\n\tat somewhere")
    each = ResultOrException(index=0, exception=failure)
    result = RegionActionResult(exception=failure) if whole else RegionActionResult(resultOrException=[each])
    client.multi = MultiResponse(regionActionResult=[result])
    with pytest.raises(error, match="why"):
        client.get(region.server, [(region, [b"a"])], [Column(family=b"cf")])


def test_an_answer_that_leaves_rows_out_is_unavailable_and_the_order_is_that_of_the_rows() -> None:
    client = Client()
    client.meta = [row(b"", b"")]
    region = client.region_of("t", b"a")
    assert region is not None
    answers = [
        ResultOrException(index=at, result=Result(associated_cell_count=0, exists=at == 1)) for at in (1, 0)
    ]
    client.multi = MultiResponse(regionActionResult=[RegionActionResult(resultOrException=answers)])
    read = client.get(region.server, [(region, [b"a", b"b"])], [], existence_only=True)
    assert read.exists == [False, True]
    with pytest.raises(Unavailable, match="left rows out"):
        client.get(region.server, [(region, [b"a", b"b", b"c"])], [])
