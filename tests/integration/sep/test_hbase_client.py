"""Tables, rows and regions of a real HBase over its own RPC."""

from __future__ import annotations

import struct

import pytest
from rtolap.base.errors import NotFound, Refused

from tests.support.hbase import mutations
from tests.support.hbase.client import HBaseClient

pytestmark = pytest.mark.integration


def test_what_is_written_is_read_and_what_is_deleted_is_not(
    hbase_client: HBaseClient, unique_name: str
) -> None:
    table = hbase_client.create_table(unique_name, ("cf", "other"), splits=[b"m"])
    rows = [b"a", b"b", b"n", b"z"]
    hbase_client.write_all(table, [mutations.put(row, {"cf:x": row, "other:y": b"1"}) for row in rows])
    assert hbase_client.write(table, mutations.increment(b"a", "cf:n", 5))["cf:n"][1] == struct.pack(">q", 5)
    hbase_client.write(table, mutations.append(b"a", "cf:x", b"+"))
    hbase_client.write(table, mutations.delete_column(b"b", "cf:x"))
    hbase_client.write(table, mutations.delete_family(b"n", "other"))
    hbase_client.write(table, mutations.delete_row(b"z"))
    hbase_client.write(table, mutations.put(b"v", {"cf:x": b"old"}, timestamp_ms=1000))
    hbase_client.write(table, mutations.put(b"v", {"cf:x": b"new"}, timestamp_ms=2000))
    hbase_client.write(table, mutations.delete_version(b"v", "cf:x", 2000))
    read = {
        row: {column: value for column, (_, value) in cells.items()}
        for row, cells in hbase_client.scan(table).items()
    }
    assert read == {
        b"a": {"cf:n": struct.pack(">q", 5), "cf:x": b"a+", "other:y": b"1"},
        b"b": {"other:y": b"1"},
        b"n": {"cf:x": b"n"},
        b"v": {"cf:x": b"old"},
    }


def test_regions_move_and_split_while_rows_are_written(hbase_client: HBaseClient, unique_name: str) -> None:
    table = hbase_client.create_table(unique_name)
    hbase_client.write_all(table, [mutations.put(b"%03d" % n, {"cf:x": b"1"}) for n in range(100)])
    (region,) = hbase_client.regions(table)
    (target,) = (server for server in hbase_client.region_servers() if server != region.server)
    hbase_client.move(region, target)
    hbase_client.write(table, mutations.put(b"050", {"cf:x": b"2"}))
    (region,) = hbase_client.regions(table)
    hbase_client.split(region, b"050")
    hbase_client.write(table, mutations.put(b"051", {"cf:x": b"3"}))
    assert [region.info.start_key for region in hbase_client.regions(table)] == [b"", b"050"]
    rows = hbase_client.scan(table)
    assert (len(rows), rows[b"050"]["cf:x"][1], rows[b"051"]["cf:x"][1]) == (100, b"2", b"3")


def test_refusals_of_hbase_are_told_apart(hbase_client: HBaseClient, unique_name: str) -> None:
    table = hbase_client.create_table(unique_name)
    with pytest.raises(Refused, match="TableExists"):
        hbase_client.create_table(table)
    with pytest.raises(NotFound):
        hbase_client.master.remove_peer("nobody")
    with pytest.raises(NotFound):
        hbase_client.master.enable_peer("nobody")
