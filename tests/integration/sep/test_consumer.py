"""A consumer as the peer of a real HBase: everything that is written there arrives, as it was written."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from rtolap.base.clock import SystemClock
from rtolap.metadata.zookeeper import ZooKeeperStore
from rtolap.model.subscription import HBaseSource, Subscription, SubscriptionListener
from rtolap.sep.consumer.log_bounds import LogBounds
from rtolap.sep.consumer.registration import Registration
from rtolap.sep.events.decode import EditDecoder
from rtolap.sep.events.edit_batch import CellType
from rtolap.sep.events.filters import EditFilter, RowPrefixFilter
from rtolap.sep.events.tags import ttl_ms
from rtolap.sep.hbase.regions import RegionClient
from rtolap.sep.hbase.znodes import HBaseZnodes, ServerName
from rtolap.sep.subscriptions import commands
from rtolap.sep.subscriptions.source import open_source

from tests.support.hbase import mutations
from tests.support.hbase.client import HBaseClient, Region
from tests.support.sep.consumer_harness import RunningConsumer, running_consumer
from tests.support.sep.replication_client import RegionServer
from tests.support.sep.wal_calls import Cell, Entry, events_of
from tests.support.waiting import patience_s, until

pytestmark = pytest.mark.integration

TABLE = "consumed"


@dataclass(frozen=True)
class Captured:
    """What the consumer of one subscription has been sent.

    Each batch becomes a list once: one of them has 200 000 cells, and who waits looks often.
    """

    consumer: RunningConsumer
    registration: Registration
    _listed: list[list[dict[str, Any]]] = field(default_factory=list)

    def events(self, prefix: bytes = b"") -> list[dict[str, Any]]:
        """List the events of rows that begin so, in the order of their arrival.

        As a process of ours does, it registers its ports again where a busy machine has lost the session.
        """
        self.registration.register()
        self._listed.extend(events_of(batch) for batch, _ in self.consumer.batches[len(self._listed) :])
        return [event for events in self._listed for event in events if event["row"].startswith(prefix)]

    def wait(self, prefix: bytes, count: int) -> list[dict[str, Any]]:
        """Wait for so many events, which there are then, and not more; by sequence id.

        A call whose answer does not come in time is sent again whole: what it repeats counts once.
        """
        until(lambda: len(self._distinct(prefix)) >= count, f"{count} events of {prefix!r}")
        events = self._distinct(prefix)
        assert len(events) == count
        return sorted(events, key=lambda event: (event["sequence_id"], event["row"]))

    def _distinct(self, prefix: bytes) -> list[dict[str, Any]]:
        found = self.events(prefix)
        return list(
            {(event["region"], event["sequence_id"], event["row"]): event for event in found}.values()
        )


@contextmanager
def captured_by(
    name: str,
    hbase: str,
    tables: dict[str, tuple[str, ...]],
    filters: tuple[EditFilter, ...] = (),
    *,
    bounded: bool = False,
) -> Iterator[Captured]:
    """A subscription from now on, and its consumer with two ports, registered as a process of ours does.

    `bounded`: it refuses edits that HBase cannot have written.
    """
    source, now_ms = HBaseSource(hbase), int(time.time() * 1000)
    subscription = Subscription(
        name=name, source=source, tables=tables, listener=SubscriptionListener("kafka", topic="unused")
    )
    with open_source(source) as opened:
        kept = commands.create(opened, subscription, now_ms)
        decoder = EditDecoder(start_ms=kept.start_ms, filters=filters)
        store = ZooKeeperStore(hbase, root="/", session_timeout_s=patience_s(6))
        try:
            bounds = LogBounds(RegionClient(HBaseZnodes(store, "/hbase")), SystemClock()) if bounded else None
            with running_consumer(
                decoder=decoder, allowed=lambda: region_servers(hbase), ports=2, bounds=bounds
            ) as consumer:
                sinks = [ServerName("127.0.0.1", port, now_ms) for port in consumer.ports]
                registration = Registration(store, kept.paths.root, sinks)
                registration.register()
                yield Captured(consumer, registration)
                registration.withdraw()
        finally:
            store.close()
            commands.drop(opened, name)


def region_servers(hbase: str) -> list[str]:
    with HBaseClient(hbase) as client:
        return [server.host for server in client.region_servers()]


@pytest.fixture(scope="module")
def client(hbase: str) -> Iterator[HBaseClient]:
    with HBaseClient(hbase) as opened:
        yield opened


@pytest.fixture(scope="module")
def captured(hbase: str, client: HBaseClient) -> Iterator[Captured]:
    client.create_table(TABLE, ("cf", "other"), splits=[b"m"])
    servers = client.region_servers()
    with captured_by("consumed", hbase, {TABLE: ()}) as capture:
        yield capture
    assert client.region_servers() == servers  # none has aborted


def cells_of(event: dict[str, Any]) -> list[tuple[Any, ...]]:
    """(family, qualifier, type, value)"""
    return [(family, qualifier, kind, value) for family, qualifier, _, kind, value, _ in event["cells"]]


def test_a_put_arrives_with_all_that_hbase_knows_of_it(captured: Captured, client: HBaseClient) -> None:
    before_ms = time.time() * 1000 - 1000
    client.write(TABLE, mutations.put(b"put-1", {"cf:x": b"1", "other:y": b""}, timestamp_ms=1234))
    (event,) = captured.wait(b"put-", 1)
    (region,) = (region for region in client.regions(TABLE) if region.holds(b"put-1"))
    assert event["table"] == TABLE
    assert event["region"] == region.encoded
    assert event["sequence_id"] > 0
    assert before_ms < event["write_time_ms"] < time.time() * 1000 + 1000
    assert event["cluster_ids"] == [str(client.znodes.cluster_id())]
    assert event["cells"] == [
        (b"cf", b"x", 1234, CellType.PUT, b"1", b""),
        (b"other", b"y", 1234, CellType.PUT, b"", b""),
    ]


def test_each_kind_of_delete_is_told_apart(captured: Captured, client: HBaseClient) -> None:
    row = b"delete"
    client.write(TABLE, mutations.put(row, {"cf:x": b"1", "other:y": b"2"}, timestamp_ms=1000))
    for delete in (
        mutations.delete_version(row, "cf:x", 1000),
        mutations.delete_column(row, "cf:x"),
        mutations.delete_family_version(row, "other", 1000),
        mutations.delete_family(row, "cf"),
        mutations.delete_row(row),
    ):
        client.write(TABLE, delete)
    deletes = captured.wait(row, 6)[1:]
    assert [cells_of(event) for event in deletes] == [
        [(b"cf", b"x", CellType.DELETE, b"")],
        [(b"cf", b"x", CellType.DELETE_COLUMN, b"")],
        [(b"other", b"", CellType.DELETE_FAMILY_VERSION, b"")],
        [(b"cf", b"", CellType.DELETE_FAMILY, b"")],
        [(b"cf", b"", CellType.DELETE_FAMILY, b""), (b"other", b"", CellType.DELETE_FAMILY, b"")],
    ]
    assert deletes[0]["cells"][0][2] == 1000


def test_increments_and_appends_arrive_as_puts_of_their_result(
    captured: Captured, client: HBaseClient
) -> None:
    for _ in range(2):
        client.write(TABLE, mutations.increment(b"sum", "cf:n", 5))
        client.write(TABLE, mutations.append(b"sum", "cf:t", b"ab"))
    assert [cells_of(event) for event in captured.wait(b"sum", 4)] == [
        [(b"cf", b"n", CellType.PUT, struct.pack(">q", 5))],
        [(b"cf", b"t", CellType.PUT, b"ab")],
        [(b"cf", b"n", CellType.PUT, struct.pack(">q", 10))],
        [(b"cf", b"t", CellType.PUT, b"abab")],
    ]


def test_a_batch_of_many_rows_is_one_edit_with_an_event_for_each(
    captured: Captured, client: HBaseClient
) -> None:
    rows = [b"batch-%02d" % number for number in range(20)]
    client.write_all(TABLE, [mutations.put(row, {"cf:x": row}) for row in rows], atomic=True)
    events = captured.wait(b"batch-", 20)
    assert [event["row"] for event in events] == rows
    assert len({(event["region"], event["sequence_id"]) for event in events}) == 1


def test_a_cell_of_a_megabyte_arrives_whole(captured: Captured, client: HBaseClient) -> None:
    value = bytes(range(256)) * 4096
    client.write(TABLE, mutations.put(b"large", {"cf:x": value}))
    (event,) = captured.wait(b"large", 1)
    assert cells_of(event) == [(b"cf", b"x", CellType.PUT, value)]


def test_two_hundred_thousand_cells_of_one_edit_arrive_in_one_call(
    captured: Captured, client: HBaseClient
) -> None:
    puts = [
        mutations.put(b"many-%04d" % row, {f"cf:{column:02}": b"%d" % row for column in range(100)})
        for row in range(2000)
    ]
    client.write_all(TABLE, puts, atomic=True)

    def arrived() -> list[tuple[int, int]]:
        batches = [batch for batch, _ in list(captured.consumer.batches) if batch.num_cells >= 200_000]
        return [(batch.num_events, batch.num_cells) for batch in batches]

    until(arrived, "the call")
    assert set(arrived()) == {(2000, 200_000)}, "whole, each time that it was sent"


def test_the_time_to_live_travels_as_a_tag(captured: Captured, client: HBaseClient) -> None:
    client.write(TABLE, mutations.put(b"ttl-1", {"cf:x": b"1"}, ttl_ms=3_600_000))
    captured.wait(b"ttl-", 1)
    taken = [batch for batch, _ in captured.consumer.batches if b"ttl-1" in batch.events["row"].to_pylist()]
    found = [batch.filter(batch.events["row"].to_numpy(zero_copy_only=False) == b"ttl-1") for batch in taken]
    assert found, "HBase sends a call again whose answer was late"
    assert all(ttl_ms(batch.cells["tags"]).to_pylist() == [3_600_000] for batch in found)


def test_sequence_ids_go_on_growing_when_a_region_moves_and_in_its_daughters(
    captured: Captured, client: HBaseClient
) -> None:
    def region_of(row: bytes) -> Region:
        (region,) = (region for region in client.regions(TABLE) if region.holds(row))
        return region

    rows = [b"zmove-%d" % number for number in range(8)]
    client.write(TABLE, mutations.put(rows[1], {"cf:x": b"before"}))
    region = region_of(rows[1])
    (target,) = (server for server in client.region_servers() if server != region.server)
    client.move(region, target)
    client.write(TABLE, mutations.put(rows[1], {"cf:x": b"moved"}))
    client.split(region_of(rows[1]), rows[5])
    for row in (rows[1], rows[7]):
        client.write(TABLE, mutations.put(row, {"cf:x": b"split"}))
    before, moved, lower, upper = captured.wait(b"zmove-", 4)
    assert before["region"] == moved["region"] == region.encoded
    assert {lower["region"], upper["region"]} == {region_of(row).encoded for row in (rows[1], rows[7])}
    assert before["sequence_id"] < moved["sequence_id"]
    assert moved["sequence_id"] < min(lower["sequence_id"], upper["sequence_id"])
    assert captured.consumer.metric("left_out_total", reason="meta_cells") == 0  # HBase keeps them to itself


def test_what_failed_is_sent_again(captured: Captured, client: HBaseClient) -> None:
    captured.consumer.error = ValueError("not now")
    client.write(TABLE, mutations.put(b"again", {"cf:x": b"1"}))
    until(lambda: len(captured.events(b"again")) >= 2, "the second try")
    done = captured.consumer.metric("calls_total", outcome="done")
    captured.consumer.error = None
    until(lambda: captured.consumer.metric("calls_total", outcome="done") > done, "a try that goes well")
    assert len({(event["region"], event["sequence_id"]) for event in captured.events(b"again")}) == 1


def test_region_servers_ship_to_both_ports_at_once(captured: Captured, client: HBaseClient) -> None:
    captured.consumer.gate.clear()
    try:
        for number in range(300):
            client.write(TABLE, mutations.put(b"%c-both-%03d" % (b"az"[number % 2], number), {"cf:x": b"1"}))
        until(lambda: captured.consumer.server.calls >= 2, "calls at work at once")
    finally:
        captured.consumer.gate.set()
    until(lambda: len({event["row"] for event in captured.events() if b"-both-" in event["row"]}) == 300)


def test_subscriptions_get_their_own_while_writes_run_and_nothing_older_than_themselves(
    hbase: str, client: HBaseClient
) -> None:
    tables = [client.create_table(f"filtered_{name}", ("cf", "d")) for name in "ab"]
    stop, written = threading.Event(), dict.fromkeys(tables, 0)

    def write(table: str) -> None:
        with HBaseClient(hbase) as own:
            while not stop.is_set():
                row = b"%06d" % written[table]
                own.write(table, mutations.put(row, {"cf:x": b"1", "d:y": b"2"}))
                written[table] += 1

    writers = [threading.Thread(target=write, args=(table,)) for table in tables]
    for writer in writers:
        writer.start()
    try:
        until(lambda: min(written.values()) > 20)
        older = dict(written)
        every_tenth = RowPrefixFilter([b"%05d" % number for number in range(0, 10_000, 2)])
        with (
            captured_by("filtered_one", hbase, {tables[0]: ("cf",)}) as one,
            captured_by("filtered_two", hbase, {tables[0]: ("d",), tables[1]: ()}, (every_tenth,)) as two,
        ):
            until(lambda: len(one.events()) > 100)
            until(lambda: {event["table"] for event in two.events()} == set(tables))
            first, second = one.events(), two.events()
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert {event["table"] for event in first} == {tables[0]}
    assert {cell[0] for event in first for cell in event["cells"]} == {b"cf"}
    assert min(int(event["row"]) for event in first) >= older[tables[0]]
    by_table: dict[str, set[bytes]] = {}
    for event in second:
        by_table.setdefault(event["table"], set()).update(cell[0] for cell in event["cells"])
        assert int(event["row"]) // 10 % 2 == 0
    assert by_table == {tables[0]: {b"d"}, tables[1]: {b"cf", b"d"}}


@pytest.fixture(autouse=True)
def _unhindered(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test that failed left behind hinders none of the others."""
    yield
    if "captured" in request.fixturenames:
        capture: Captured = request.getfixturevalue("captured")
        capture.consumer.error = None
        capture.consumer.gate.set()


@pytest.fixture
def bounded(hbase: str, captured: Captured) -> Iterator[Captured]:
    """Another subscription to the same table."""
    with captured_by("bounded", hbase, {TABLE: ()}, bounded=True) as capture:
        yield capture


def test_edits_that_hbase_has_not_written_are_refused_and_its_own_are_taken(
    bounded: Captured, client: HBaseClient
) -> None:
    captured = bounded
    client.write(TABLE, mutations.put(b"bound-1", {"cf:x": b"1"}))
    (event,) = captured.wait(b"bound-", 1)
    forged = {
        "an id that is not given": Entry(
            (Cell(b"bound-2"),), event["sequence_id"] + 50, TABLE, event["region"], event["write_time_ms"]
        ),
        "a row of another region": Entry(
            (Cell(b"z-bound"),), event["sequence_id"], TABLE, event["region"], event["write_time_ms"]
        ),
        "an id of a region that is not there": Entry(
            (Cell(b"bound-3"),), 1 << 50, TABLE, "0" * 32, event["write_time_ms"]
        ),
    }
    for title, entry in forged.items():
        with RegionServer(captured.consumer.port) as forger:
            header, _ = forger.ship(1, [entry])
        assert "HBase cannot have written" in header.exception.stack_trace, title
    rows = [b"bound-4-%03d" % at for at in range(100)]  # their ids pass the forged one
    for row in rows:
        client.write(TABLE, mutations.put(row, {"cf:x": b"real"}))
    events = captured.wait(b"bound-4-", 100)
    assert sorted(event["row"] for event in events) == rows
    assert max(each["sequence_id"] for each in events) > forged["an id that is not given"].sequence_id
    assert not captured.events(b"bound-2")


def test_whether_a_table_is_enabled_is_read_from_hbase(hbase: str, client: HBaseClient) -> None:
    table = "bounded"
    client.create_table(table, ("cf",))
    store = ZooKeeperStore(hbase, root="/", session_timeout_s=patience_s(6))
    try:
        with RegionClient(HBaseZnodes(store, "/hbase")) as regions:
            assert regions.is_enabled(table)
            assert not regions.is_enabled("absent")
            client.disable_table(table)
            assert not regions.is_enabled(table)
    finally:
        store.close()
