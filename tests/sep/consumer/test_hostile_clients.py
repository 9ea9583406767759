"""Clients on an allowed host that are no region servers, beside one that is: its edits come through."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from rtolap.base.errors import NotInLog
from rtolap.sep.consumer.limits import ConsumerSettings
from rtolap.sep.events.decode import EditDecoder
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.events.filters import TableFilter

from tests.support.hostile.process_memory import watched
from tests.support.seeds import so_many
from tests.support.sep.consumer_harness import RunningConsumer, running_consumer
from tests.support.sep.held_consumer import held_consumer
from tests.support.sep.hostile_senders import FAR_AHEAD, HostileSenders, smallest_cells
from tests.support.sep.replication_client import RegionServer, replicate, request
from tests.support.sep.wal_calls import Cell, Entry
from tests.support.waiting import until

MIB = 1 << 20
ENTRIES = [Entry((Cell(b"r1"), Cell(b"r2")), 1)]


def test_claims_of_large_frames_keep_no_memory_from_others() -> None:
    with running_consumer() as consumer, ExitStack() as opened:
        for _ in range(4):
            client = opened.enter_context(RegionServer(consumer.port))
            client.send((256 * MIB).to_bytes(4, "big") + bytes(1024))
        until(lambda: consumer.server.metrics.open_connections == 4)
        with RegionServer(consumer.port) as server:
            large = [Entry((Cell(b"r", value=bytes(8 * MIB)),), 1)]
            assert not server.ship(1, ENTRIES)[0].HasField("exception")
            assert not server.ship(2, large)[0].HasField("exception")
        until(
            lambda: consumer.server.budget.taken_bytes < MIB, "the frames that were answered are given back"
        )


def test_a_claim_takes_no_memory_of_the_process() -> None:
    settings = ConsumerSettings(frame_bytes_max=256 * MIB, bytes_in_flight_max=512 * MIB)
    with held_consumer(settings) as consumer, ExitStack() as opened:
        memory = watched(consumer.process.pid)
        for _ in range(64):
            client = opened.enter_context(RegionServer(consumer.port))
            client.send((256 * MIB).to_bytes(4, "big") + bytes(1024))
        until(lambda: consumer.state().taken_bytes >= 64 * 1024)
        assert memory.growth_bytes() < 32 * MIB


def test_idle_connections_of_one_address_keep_nobody_out() -> None:
    settings = ConsumerSettings(connections_max=60, connections_per_address_max=40)
    with running_consumer(settings=settings) as consumer, ExitStack() as opened:
        honest = opened.enter_context(RegionServer(consumer.port))
        assert not honest.ship(1, ENTRIES)[0].HasField("exception")
        for _ in range(100):
            opened.enter_context(RegionServer(consumer.port, greets=False))
        with RegionServer(consumer.port) as late:
            assert not late.ship(1, ENTRIES)[0].HasField("exception")
        assert not honest.ship(2, ENTRIES)[0].HasField("exception")
        until(lambda: consumer.metric("connections_closed_total", reason="crowded") >= 61)
        assert consumer.server.metrics.open_connections <= 42


def test_connections_whose_address_is_looked_up_take_no_place_from_those_that_are_allowed() -> None:
    gate = threading.Event()
    gate.set()

    def allowed() -> list[str]:
        gate.wait(60)
        return ["127.0.0.1"]

    settings = ConsumerSettings(connections_max=4)
    with running_consumer(settings=settings, allowed=allowed) as consumer, ExitStack() as opened:
        # the look-up of the start is over: it would count as one that was done just now
        until(lambda: consumer.allowed.allows("127.0.0.1") and consumer.allowed._refreshing is None)
        gate.clear()
        opened.callback(gate.set)
        consumer.allowed._looked_up_s = -1e9  # as if the last look-up were long ago
        for _ in range(10):
            opened.enter_context(closing_socket(consumer.port, "127.0.0.2"))
        until(lambda: consumer.server.metrics.open_connections == 10)
        with RegionServer(consumer.port) as server:
            assert not server.ship(1, ENTRIES)[0].HasField("exception")


@contextlib.contextmanager
def closing_socket(port: int, source: str) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), 20, source_address=(source, 0)) as opened:
        yield opened


def test_a_frame_that_trickles_is_closed_though_it_never_pauses() -> None:
    settings = ConsumerSettings(frame_grace_s=0.3, frame_bytes_per_s_min=100_000, idle_timeout_s=60)
    with running_consumer(settings=settings) as consumer, RegionServer(consumer.port) as client:
        client.send((900_000).to_bytes(4, "big"))

        def is_closed() -> bool:
            with contextlib.suppress(OSError):
                client.send(b"x")
            return consumer.metric("connections_closed_total", reason="slow") == 1

        until(is_closed)


@pytest.mark.parametrize(
    ("parameter", "block", "text"),
    [
        (b"\x0a\x00" * 400_000, b"", "too many WAL entries"),
        (b"", smallest_cells(60_000), "too many cells"),
        (b"\x12\x00" * 400_000, b"", "much behind its entries"),
    ],
    ids=["entries", "cells", "other fields"],
)
def test_few_bytes_that_stand_for_much_are_refused_by_name(parameter: bytes, block: bytes, text: str) -> None:
    decoder = EditDecoder(entries_max=50_000, cells_max=50_000)
    with running_consumer(decoder=decoder) as consumer, RegionServer(consumer.port) as client:
        client.send(request(1, "ReplicateWALEntry", parameter, block))
        assert text in client.answer()[0].exception.stack_trace
        assert not client.ship(2, ENTRIES)[0].HasField("exception")


def test_what_is_asked_of_a_master_has_a_bound() -> None:
    answers = {"GetClusterStatus": lambda parameter: parameter}
    with running_consumer(answers=answers) as consumer, RegionServer(consumer.port) as client:
        client.send(request(1, "GetClusterStatus", bytes(100_000)))
        assert "too large" in client.answer()[0].exception.stack_trace
        client.send(request(2, "GetClusterStatus", b"\x08\x01"))
        assert client.answer()[1] == b"\x08\x01"


class _KnownEdits:
    """Bounds of a source whose regions have given ids below FAR_AHEAD."""

    async def check(self, batch: EditBatch, deadline_s: float) -> None:
        highest = max(batch.events["sequence_id"].to_pylist())
        if highest >= FAR_AHEAD:
            raise NotInLog(f"HBase cannot have written edit {highest}")

    def close(self) -> None: ...


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(2)))
def test_honest_edits_all_come_through_beside_clients_that_do_their_worst(seed: int) -> None:
    settings = ConsumerSettings(
        frame_bytes_max=MIB,
        bytes_in_flight_max=4 * MIB,
        connections_max=24,
        connections_per_address_max=20,
        frame_grace_s=2.0,
        contended_grace_s=0.2,
    )
    decoder = EditDecoder(filters=[TableFilter({"orders": []})], entries_max=50_000, cells_max=20_000)
    calls = [
        [Entry((Cell(b"row-%d" % (number * 7 + at), value=bytes(size)),), number * 7 + at + 1)
         for at in range(7)]
        for number, size in enumerate([10, 30_000, 100] * 4)
    ]  # fmt: skip
    largest_bytes: list[int] = []
    with running_consumer(settings=settings, decoder=decoder, bounds=_KnownEdits()) as consumer:
        hostile = HostileSenders(consumer.port, seed, 32)
        try:
            watching = threading.Event()

            def look() -> None:
                while not watching.wait(0.01):
                    largest_bytes.append(consumer.server.budget.taken_bytes)

            looking = threading.Thread(target=look)
            looking.start()
            for number, entries in enumerate(calls):
                ship_until_taken(consumer, number, entries)
            until(lambda: all(hostile.sent.values()), lambda: f"each kind of client: {hostile.sent}")
            watching.set()
            looking.join()
        finally:
            hostile.close()
        # a call whose answer was lost with its connection comes again, as delivery expects
        rows = {(row, sequence_id) for batch, _ in consumer.batches for row, sequence_id in rows_of(batch)}
    assert rows == {(cell.row, entry.sequence_id) for call in calls for entry in call for cell in entry.cells}
    assert max(largest_bytes) <= settings.bytes_in_flight_max + 2 * settings.connections_max * (16 << 10)


def ship_until_taken(consumer: RunningConsumer, number: int, entries: list[Entry]) -> None:
    """Ship as HBase does: again, on a new connection where the old one was closed."""

    def is_taken() -> bool:
        with contextlib.suppress(OSError), RegionServer(consumer.port) as server:
            server.send(replicate(number, entries))
            return not server.answer()[0].HasField("exception")
        return False

    until(is_taken, f"call {number}")


def rows_of(batch: EditBatch) -> list[tuple[bytes, int]]:
    rows, ids = batch.events["row"].to_pylist(), batch.events["sequence_id"].to_pylist()
    return list(zip(rows, ids, strict=True))
