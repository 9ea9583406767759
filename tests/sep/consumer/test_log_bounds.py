"""Edits that HBase's logs cannot hold are refused, and shadow no edit that comes later."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import NotInLog, Unavailable
from rtolap.sep.consumer import log_bounds
from rtolap.sep.consumer.log_bounds import LogBounds, claims_of
from rtolap.sep.delivery.delivery import Delivery
from rtolap.sep.delivery.journal import Journal
from rtolap.sep.delivery.serving import DeliveryThread
from rtolap.sep.events.decode import EditDecoder
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.hbase.regions import Region, RegionClient
from rtolap.sep.hbase.znodes import ServerName
from rtolap.sep.listeners.callable import CallableListener

from tests.support.seeds import so_many
from tests.support.sep.consumer_harness import running_consumer
from tests.support.sep.replication_client import RegionServer
from tests.support.sep.wal_calls import Cell, Entry, encode_call
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryAdmin
from tests.support.twins.kafka_transactions import MemoryTransactionalProducer

SERVER = ServerName("one", 1, 1)
NOW_MS = 1_700_000_000_000


class Regions(RegionClient):
    """A cluster in memory: regions of `orders`, and of each the largest id that readers see. Regions that
    are `away` are not served."""

    def __init__(self, read_points: dict[str, int], borders: Sequence[bytes] = (b"",)) -> None:
        self.read_points = read_points
        self.enabled = True
        self.away: set[str] = set()
        self.asked = 0
        ends = [*borders[1:], b""]
        self.known = [
            Region(b"orders,%s,1.%s." % (start, name.encode()), start, end, SERVER)
            for name, start, end in zip(read_points, borders, ends, strict=True)
        ]

    def close(self) -> None: ...

    def regions(self, table: str) -> list[Region]:
        return self.known if table == "orders" else []

    def forget(self, table: str) -> None: ...

    def is_enabled(self, table: str) -> bool:
        return self.enabled

    def read_point(self, region: Region, row: bytes) -> int:
        self.asked += 1
        if region.encoded in self.away:
            raise Unavailable("the region is not served")
        return self.read_points[region.encoded]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_bounds, "_READ_POINT_WAIT_S", 0.05)
    monkeypatch.setattr(log_bounds, "_REGION_WAIT_S", 0.05)


def batch_of(*entries: Entry) -> EditBatch:
    return EditDecoder().decode(*encode_call(entries)).batch


def edit(sequence_id: int, row: bytes = b"r", region: str = "one", **other: object) -> Entry:
    return Entry((Cell(row),), sequence_id, region=region, **other)  # type: ignore[arg-type]


def checked(bounds: LogBounds, *entries: Entry) -> list[bool]:
    """Return which events are to be set apart."""
    apart = asyncio.run(bounds.check(batch_of(*entries), time.monotonic() + 60))
    return [False] * len(entries) if apart is None else [bool(each) for each in apart]


@contextmanager
def bounds_of(client: RegionClient, **options: object) -> Iterator[LogBounds]:
    bounds = LogBounds(client, ManualClock(NOW_MS), **options)  # type: ignore[arg-type]
    try:
        yield bounds
    finally:
        bounds.close()


def test_an_id_that_its_region_has_not_given_is_refused() -> None:
    with bounds_of(Regions({"one": 10})) as bounds:
        assert checked(bounds, edit(10)) == [False]
        for entries in ([edit(11)], [edit(3), edit(1 << 60)]):
            with pytest.raises(NotInLog, match="region one of orders"):
                checked(bounds, *entries)


def test_an_edit_that_readers_see_a_moment_later_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_bounds, "_READ_POINT_WAIT_S", 60.0)

    class Late(Regions):
        def read_point(self, region: Region, row: bytes) -> int:
            return 9 + (super().read_point(region, row) and self.asked > 3)

    with bounds_of(Late({"one": 10})) as bounds:
        assert checked(bounds, edit(10)) == [False]


def test_rows_that_a_region_does_not_have_are_refused() -> None:
    with bounds_of(Regions({"one": 10, "two": 20}, (b"", b"m"))) as bounds:
        assert checked(bounds, edit(1, b"a"), edit(20, b"m", "two")) == [False, False]
        for wrong in (edit(1, b"m"), edit(1, b"a", "two")):
            with pytest.raises(NotInLog, match="which the region has"):
                checked(bounds, wrong)


def test_edits_of_a_parent_are_bounded_by_the_regions_that_have_its_rows() -> None:
    with bounds_of(Regions({"one": 10, "two": 20, "three": 5}, (b"", b"g", b"p"))) as bounds:
        parent = [edit(9, b"a", "parent"), edit(10, b"h", "parent")]
        assert checked(bounds, *parent) == [False, False]
        for beyond in (edit(11, b"a", "parent"), edit(6, b"z", "parent")):
            with pytest.raises(NotInLog):
                checked(bounds, beyond)


def test_edits_of_a_region_that_was_open_with_their_ids_pass_after_it_is_gone() -> None:
    client = Regions({"one": 10})
    with bounds_of(client) as bounds:
        checked(bounds, edit(10))
        client.known = [Region(b"orders,,2.again.", b"", b"", SERVER)]
        client.read_points = {"again": 1}
        assert checked(bounds, edit(9)) == [False]


def test_an_edit_of_the_future_is_refused() -> None:
    with bounds_of(Regions({"one": 10}), clock_ahead_max_s=60) as bounds:
        assert checked(bounds, edit(1, write_time_ms=NOW_MS + 60_000)) == [False]
        with pytest.raises(NotInLog, match="written in the future"):
            checked(bounds, edit(2, write_time_ms=NOW_MS + 60_001))


def test_a_region_that_moves_is_waited_for_and_a_disabled_table_is_nobodys_bound() -> None:
    client = Regions({"one": 10})
    client.away.add("one")
    with bounds_of(client) as bounds:
        with pytest.raises(Unavailable, match="not served"):
            checked(bounds, edit(3))
        client.enabled = False
        assert checked(bounds, edit(3)) == [False]
        assert checked(bounds, edit(3, table="gone")) == [False]
        assert bounds.unchecked == 2


def test_what_stays_beyond_its_bounds_is_set_apart_and_the_rest_is_not() -> None:
    clock = ManualClock(NOW_MS)
    with bounds_of(
        Regions({"one": 10, "two": 10}, (b"", b"m")), doubt_s=30, monotonic_s=clock.monotonic_s
    ) as bounds:
        call = (edit(50), edit(1, b"m", "two"), edit(2, b"z"))
        with pytest.raises(NotInLog, match="set apart after 30 s"):
            checked(bounds, edit(50, b"a"))
        clock.advance_ms(30_000)
        assert checked(bounds, edit(50, b"a"), edit(1, b"m", "two")) == [True, False]
        assert checked(bounds, edit(10, b"a")) == [False]
        with pytest.raises(NotInLog):  # all was well in between: it begins again
            checked(bounds, *call)


def test_ids_that_were_given_are_not_asked_for_again() -> None:
    client = Regions({"one": 1000})
    with bounds_of(client) as bounds:
        for sequence_id in range(1000, 0, -100):
            checked(bounds, edit(sequence_id))
        assert client.asked == 1


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(6)))
def test_drawn_calls_pass_exactly_where_every_edit_may_be_in_a_log(seed: int) -> None:
    rng = random.Random(seed)
    borders = (b"", b"g", b"p")
    names = ("one", "two", "three")
    client = Regions({name: rng.randrange(1, 20) for name in names}, borders)
    with bounds_of(client) as bounds:
        for _ in range(20):
            entries = [
                edit(rng.randrange(1, 22), rng.choice((b"a", b"h", b"z")), rng.choice(names))
                for _ in range(rng.randrange(1, 4))
            ]
            rows = {b"a": "one", b"h": "two", b"z": "three"}
            is_possible = all(
                entry.region == rows[entry.cells[0].row]
                and entry.sequence_id <= client.read_points[entry.region]
                for entry in entries
            )
            try:
                checked(bounds, *entries)
            except NotInLog:
                assert not is_possible, (seed, entries)
            else:
                assert is_possible, (seed, entries)


def test_claims_are_by_table_and_region() -> None:
    claims = list(claims_of(batch_of(edit(3, b"b"), edit(5, b"a"), edit(4, b"c", table="other"))))
    assert [(each.table, each.region, each.highest, each.first, each.last) for each in claims] == [
        ("orders", "one", 5, b"a", b"b"),
        ("other", "one", 4, b"c", b"c"),
    ]


def delivery(deliver: Callable[[EditBatch], None]) -> tuple[Delivery, MemoryBroker]:
    broker = MemoryBroker()
    MemoryAdmin(broker).create_topic("letters", 1)
    journal = Journal(
        "journal",
        open_producer=lambda transactional_id: MemoryTransactionalProducer(broker, transactional_id),
        open_consumer=lambda topic: MemoryConsumer(broker, topic),
        admin=MemoryAdmin(broker),
    )
    made = Delivery(CallableListener(deliver, lanes=1), journal, SystemClock(), dead_letter_topic="letters")
    made.recover()
    return made, broker


def test_a_forged_id_shadows_no_later_edit_and_what_is_set_apart_is_not_remembered() -> None:
    got: list[tuple[bytes, int]] = []

    def listen(batch: EditBatch) -> None:
        rows, ids = batch.events["row"].to_pylist(), batch.events["sequence_id"].to_pylist()
        got.extend(zip(rows, ids, strict=True))

    made, broker = delivery(listen)
    thread = DeliveryThread(made, SystemClock())
    thread.start()
    client, clock = Regions({"one": 10}), ManualClock(NOW_MS)
    bounds = LogBounds(client, clock, doubt_s=30, monotonic_s=clock.monotonic_s)
    try:
        with running_consumer(deliver=thread.deliver, bounds=bounds, set_apart=thread.set_apart) as consumer:
            with RegionServer(consumer.port) as forger, RegionServer(consumer.port) as server:
                forged = [edit(at, b"forged") for at in range(11, 61)]
                header, _ = forger.ship(1, forged)
                assert "HBase cannot have written edit 60" in header.exception.stack_trace
                clock.advance_ms(30_000)
                assert not forger.ship(2, forged)[0].HasField("exception")
                assert made.counts.dead_letters == 50
                client.read_points["one"] = 60
                real = [edit(at, b"real") for at in range(1, 61)]
                assert not server.ship(1, real)[0].HasField("exception")
            assert consumer.metric("calls_total", outcome="not_in_log") == 1
            assert consumer.metric("set_apart_events_total") == 50
        assert got == [(b"real", at) for at in range(1, 61)]
        assert MemoryAdmin(broker).offsets("letters", "latest")[0] >= 50
    finally:
        thread.close()
        made.close()
