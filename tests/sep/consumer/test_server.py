"""The ports of a consumer over sockets: calls and answers, who may connect, deadlines, bounds, draining."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from rtolap.base.errors import Unavailable
from rtolap.sep.consumer.limits import ConsumerSettings
from rtolap.sep.events.decode import EditDecoder

from tests.support.hostile.process_memory import watched
from tests.support.sep.consumer_harness import RunningConsumer, running_consumer
from tests.support.sep.held_consumer import held_consumer
from tests.support.sep.replication_client import (
    PREAMBLE,
    RegionServer,
    connection_header,
    framed,
    replicate,
    request,
)
from tests.support.sep.wal_calls import Cell, Entry
from tests.support.waiting import until

ENTRIES = [Entry((Cell(b"r1"), Cell(b"r2")), 1), Entry((Cell(b"r1", value=b"w"),), 2)]
PREFIX = "org.apache.hadoop.hbase."
FLOOD_TIMEOUT_S = 300


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningConsumer]:
    settings = ConsumerSettings(frame_bytes_max=1 << 20, bytes_in_flight_max=4 << 20, connections_max=50)
    with running_consumer(settings=settings) as consumer:
        yield consumer


@pytest.fixture
def consumer(shared: RunningConsumer) -> RunningConsumer:
    shared.batches.clear()
    shared.error = None
    return shared


def test_a_call_is_answered_once_its_events_are_delivered(consumer: RunningConsumer) -> None:
    consumer.gate.clear()
    with RegionServer(consumer.port) as server:
        server.send(replicate(0, ENTRIES))
        until(lambda: consumer.batches)
        assert consumer.server.calls == 1
        consumer.gate.set()
        header, result = server.answer()
    assert header.HasField("call_id")
    assert (header.call_id, result) == (0, b"")
    assert not header.HasField("exception")
    batch, left_s = consumer.batches[0]
    assert batch.events["row"].to_pylist() == [b"r1", b"r2", b"r1"]
    assert batch.cells["value"].to_pylist() == [b"v", b"v", b"w"]
    assert 50 < left_s <= 60


def test_a_failed_delivery_is_an_exception_that_says_why_and_the_connection_stays(
    consumer: RunningConsumer,
) -> None:
    with RegionServer(consumer.port) as server:
        for error, class_name in (
            (ValueError("the topic is full"), "java.io.IOException"),
            (Unavailable("no broker"), f"{PREFIX}regionserver.RegionServerStoppedException"),
        ):
            consumer.error = error
            header, _ = server.ship(5, ENTRIES)
            assert header.call_id == 5
            assert header.exception.exception_class_name == class_name
            assert str(error) in header.exception.stack_trace
        consumer.error = None
        assert not server.ship(6, ENTRIES)[0].HasField("exception")


def test_calls_of_a_connection_are_worked_on_together_and_answered_as_they_are_done(
    consumer: RunningConsumer,
) -> None:
    with RegionServer(consumer.port) as server:
        server.ship(0, ENTRIES)  # a connection that has sent no edits yet has one call at a time
        consumer.batches.clear()
        consumer.gate.clear()
        server.send(replicate(1, ENTRIES) + request(2, "Unknown") + replicate(3, ENTRIES))
        assert server.answer()[0].call_id == 2
        until(lambda: len(consumer.batches) == 2)
        consumer.gate.set()
        assert {server.answer()[0].call_id for _ in range(2)} == {1, 3}


def test_unknown_methods_are_unsupported_operations(consumer: RunningConsumer) -> None:
    with RegionServer(consumer.port) as server:
        server.send(request(9, "Multi"))
        exception = server.answer()[0].exception
    assert exception.exception_class_name == "java.lang.UnsupportedOperationException"
    assert "expected one of ['ReplicateWALEntry']" in exception.stack_trace


def test_a_call_that_cannot_be_read_is_answered_and_the_next_one_is_taken(consumer: RunningConsumer) -> None:
    with RegionServer(consumer.port) as server:
        server.send(request(1, parameter=b"\xff\xff") + request(2, cell_block=b"\0\0\0\7torn"))
        for _ in range(2):
            assert server.answer()[0].exception.exception_class_name == f"{PREFIX}DoNotRetryIOException"
        assert not server.ship(3, ENTRIES)[0].HasField("exception")


@pytest.mark.parametrize(
    ("codec", "compressor", "class_name"),
    [
        (f"{PREFIX}codec.CellCodec", "", f"{PREFIX}ipc.UnsupportedCellCodecException"),
        ("", "org.apache.hadoop.io.compress.GzipCodec", f"{PREFIX}ipc.UnsupportedCompressionCodecException"),
    ],
)
def test_other_codecs_and_compressors_are_answered_with_what_is_expected(
    consumer: RunningConsumer, codec: str, compressor: str, class_name: str
) -> None:
    with RegionServer(consumer.port, codec=codec, compressor=compressor) as server:
        for call_id in (0, 1):
            header, _ = server.ship(call_id, ENTRIES)
            assert (header.call_id, header.exception.exception_class_name) == (call_id, class_name)
    assert not consumer.batches


@pytest.mark.parametrize("codec", ["", f"{PREFIX}codec.KeyValueCodec"])
def test_the_codec_without_tags_is_read_too(consumer: RunningConsumer, codec: str) -> None:
    with RegionServer(consumer.port, codec=codec) as server:
        assert not server.ship(0, ENTRIES)[0].HasField("exception")


def test_who_wants_to_log_in_is_told_that_nobody_can(consumer: RunningConsumer) -> None:
    before = consumer.metric("connections_closed_total", reason="kerberos")
    with RegionServer(consumer.port, greets=False) as client:
        client.send(b"Securi")
        header, _ = client.answer()
        assert header.call_id == 2**32 - 1
        assert header.exception.exception_class_name == f"{PREFIX}security.AccessDeniedException"
        assert "does not speak Kerberos" in header.exception.stack_trace
        assert client.is_closed()
    with RegionServer(consumer.port, greets=False) as client:
        client.send(b"HBas\x00\x51")
        texts = [client.sasl_text(), client.sasl_text()] if client.sasl_status() else []
        assert texts[0] == f"{PREFIX}security.AccessDeniedException"
        assert "does not speak Kerberos" in texts[1]
        assert client.is_closed()
    until(lambda: consumer.metric("connections_closed_total", reason="kerberos") == before + 2)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"Regist", "preamble"),
        (b"GET / HTTP/1.1\r\n\r\n", "preamble"),
        (PREAMBLE + b"\xff\xff\xff\xff", "header"),
        (PREAMBLE + b"\x7f\xff\xff\xff", "header"),
        (PREAMBLE + framed(b"\xff" * 8), "header"),
        (PREAMBLE + connection_header() + b"\x7f\xff\xff\xff", "oversized"),
        (PREAMBLE + connection_header() + b"\x00\x10\x00\x01", "oversized"),
        (PREAMBLE + connection_header() + b"\xff\xff\xff\xff", "torn"),
        (PREAMBLE + connection_header() + bytes(4), "torn"),
        (PREAMBLE + connection_header() + framed(b"\xff\xff\xff\xff\xff"), "torn"),
        (PREAMBLE + framed(b"") + framed(b"\x02\x08"), "torn"),
    ],
)
def test_bytes_that_are_no_frames_close_their_connection_and_are_counted(
    consumer: RunningConsumer, sent: bytes, reason: str
) -> None:
    before = consumer.metric("connections_closed_total", reason=reason)
    with RegionServer(consumer.port, greets=False) as client:
        client.send(sent)
        assert client.is_closed()
    until(lambda: consumer.metric("connections_closed_total", reason=reason) == before + 1)
    with RegionServer(consumer.port) as server:
        assert not server.ship(1, ENTRIES)[0].HasField("exception")


def test_a_client_that_leaves_within_a_frame_gives_its_bytes_back(consumer: RunningConsumer) -> None:
    with RegionServer(consumer.port) as server:
        server.send(replicate(1, ENTRIES)[:-1])
        until(lambda: consumer.server.budget.taken_bytes)
    until(lambda: not consumer.server.budget.taken_bytes)


def test_a_call_that_its_caller_has_given_up_is_not_begun() -> None:
    slow = threading.Event()

    class SlowDecoder(EditDecoder):
        def decode(self, parameter: object, cell_block: object) -> object:  # type: ignore[override]
            slow.wait(20)
            return super().decode(parameter, cell_block)  # type: ignore[arg-type]

    large = [Entry((Cell(b"r", value=b"x" * 300_000),))]
    with running_consumer(decoder=SlowDecoder()) as consumer, RegionServer(consumer.port) as server:
        began_s = time.monotonic()
        server.send(replicate(1, large, timeout_ms=50))
        until(lambda: time.monotonic() > began_s + 0.06)
        slow.set()
        exception = server.answer()[0].exception
        assert exception.exception_class_name == f"{PREFIX}exceptions.TimeoutIOException"
        assert "within 0.05 s" in exception.stack_trace
        assert not consumer.batches
        assert consumer.metric("calls_total", outcome="late") == 1
        server.send(replicate(2, large, timeout_ms=None))
        assert not server.answer()[0].HasField("exception")
        assert consumer.batches[0][1] > 30


def test_only_allowed_addresses_connect_and_one_that_is_new_is_looked_up() -> None:
    lists: list[list[str]] = [["10.0.0.0/8", "absent.invalid"]]
    with running_consumer(allowed=lambda: lists[-1]) as consumer:
        with RegionServer(consumer.port, greets=False) as stranger:
            assert stranger.is_closed()
        until(lambda: consumer.metric("connections_closed_total", reason="address") == 1)
        lists.append(["localhost"])
        consumer.allowed._looked_up_s = -1e9  # as if the last look-up were long ago
        with RegionServer(consumer.port) as server:
            assert not server.ship(1, ENTRIES)[0].HasField("exception")


def test_one_connection_too_many_is_closed() -> None:
    with (
        running_consumer(settings=ConsumerSettings(connections_max=1)) as consumer,
        RegionServer(consumer.port) as first,
    ):
        assert not first.ship(1, ENTRIES)[0].HasField("exception")
        with RegionServer(consumer.port, greets=False) as second:
            assert second.is_closed()
        assert not first.ship(2, ENTRIES)[0].HasField("exception")


def test_silent_clients_are_closed_but_not_one_that_waits_for_its_answer() -> None:
    settings = ConsumerSettings(handshake_timeout_s=0.2, frame_grace_s=0.2, idle_timeout_s=0.4)
    with running_consumer(settings=settings) as consumer:
        consumer.gate.clear()
        with RegionServer(consumer.port) as waiting:
            waiting.send(replicate(1, ENTRIES))
            until(lambda: consumer.batches)
            for sent in (
                b"",
                b"HBa",
                PREAMBLE,
                PREAMBLE + connection_header(),
                PREAMBLE + connection_header() + b"\0\0",
                PREAMBLE + connection_header() + replicate(1, ENTRIES)[:-1],
            ):
                with RegionServer(consumer.port, greets=False) as silent:
                    silent.send(sent)
                    assert silent.is_closed(), sent
            assert consumer.metric("connections_closed_total", reason="silent") == 5
            assert consumer.metric("connections_closed_total", reason="slow") == 1
            consumer.gate.set()
            assert not waiting.answer()[0].HasField("exception")


def test_a_flood_fills_the_buffers_of_its_sender_and_not_ours() -> None:
    settings = ConsumerSettings(
        frame_bytes_max=1 << 20,
        bytes_in_flight_max=2 << 20,
        calls_per_connection_max=4,
        contended_grace_s=FLOOD_TIMEOUT_S,
        frame_grace_s=FLOOD_TIMEOUT_S,
    )
    frame = replicate(1, [Entry((Cell(b"r", value=b"x" * 900_000),))])
    with running_consumer(settings=settings) as consumer:
        consumer.gate.clear()
        servers = [RegionServer(consumer.port) for _ in range(6)]
        senders = [threading.Thread(target=server.send, args=(frame * 8,)) for server in servers]
        for sender in senders:
            sender.start()
        until(lambda: consumer.server.budget.waiting == 5, "all but the one whose call is at work")
        assert consumer.server.budget.taken_bytes <= settings.bytes_in_flight_max
        until(lambda: consumer.batches)
        small = replicate(1, ENTRIES)
        consumer.gate.set()
        answered = [server.answer()[0].HasField("exception") for server in servers for _ in range(8)]
        assert answered == [False] * 48
        for sender in senders:
            sender.join()
        until(lambda: not consumer.server.budget.taken_bytes)

        # one connection with many small calls: no more of them at work than allowed
        consumer.gate.clear()
        consumer.batches.clear()
        servers[0].send(small * 50)
        until(lambda: len(consumer.batches) == 4)
        assert consumer.server.calls == 4
        consumer.gate.set()
        assert all(not servers[0].answer()[0].HasField("exception") for _ in range(50))
        for server in servers:
            server.close()


@pytest.mark.parametrize(
    "entries",
    [
        [Entry((Cell(b"r", value=b"x" * 200_000),))],
        [Entry((Cell(b"%d" % number),), number) for number in range(1, 1751)],
    ],
    ids=["large values", "small edits"],
)
def test_a_flood_leaves_the_memory_of_the_process_bounded(entries: list[Entry]) -> None:
    mib = 1 << 20
    settings = ConsumerSettings(frame_bytes_max=mib, bytes_in_flight_max=2 * mib)
    # nothing of this is about time: the machine may have other work
    frame, connections, frames = replicate(1, entries, timeout_ms=1000 * FLOOD_TIMEOUT_S), 24, 19
    with held_consumer(settings) as consumer, RegionServer(consumer.port) as first, ExitStack() as opened:
        first.send(replicate(0, ENTRIES))
        until(lambda: consumer.state().calls == 1)  # what is loaded with the first call does not count
        memory = watched(consumer.process.pid)
        servers = [
            opened.enter_context(RegionServer(consumer.port, timeout_s=FLOOD_TIMEOUT_S))
            for _ in range(connections)
        ]
        senders = [threading.Thread(target=server.send, args=(frame * frames,)) for server in servers]
        for sender in senders:
            sender.start()

        def is_full() -> bool:
            state = consumer.state()
            all_stand = state.calls + state.waiting == connections + 1  # each is at work, or waits for memory
            return all_stand and state.taken_bytes > settings.bytes_in_flight_max / 2

        # the listener stands still: as much as may be is in the process, the rest waits at its senders
        until(is_full, "a full consumer", timeout_s=FLOOD_TIMEOUT_S)
        consumer.go()
        for server in servers:
            for _ in range(frames):
                assert not server.answer()[0].HasField("exception")
        for sender in senders:
            sender.join()
        bound_bytes = 4 * settings.bytes_in_flight_max + 56 * mib
        assert connections * frames * len(frame) > 1.3 * bound_bytes
        assert memory.growth_bytes() < bound_bytes


def test_the_frame_of_a_call_is_given_up_once_it_is_decoded(consumer: RunningConsumer) -> None:
    value = b"x" * 700_000

    def large_blocks() -> int:
        return sum(trace.size > len(value) for trace in tracemalloc.take_snapshot().traces)

    consumer.gate.clear()
    tracemalloc.start()
    try:
        with RegionServer(consumer.port) as server:
            frame = replicate(1, [Entry((Cell(b"r", value=value),))])
            server.send(frame[:-1])
            until(lambda: large_blocks() == 2)  # this test's and the consumer's
            server.send(frame[-1:])
            until(lambda: consumer.batches)
            until(lambda: large_blocks() == 1)
            consumer.gate.set()
            assert not server.answer()[0].HasField("exception")
    finally:
        tracemalloc.stop()
        consumer.gate.set()


def test_a_drain_answers_what_is_at_work_and_takes_nothing_new() -> None:
    with running_consumer(ports=2) as consumer:
        consumer.gate.clear()
        first, second = (RegionServer(port) for port in consumer.ports)
        first.send(replicate(1, ENTRIES))
        until(lambda: consumer.batches)
        draining = threading.Thread(target=consumer.drain, args=(30.0,))
        draining.start()
        until(lambda: consumer.server._draining)
        second.send(replicate(2, ENTRIES))
        consumer.gate.set()
        assert not first.answer()[0].HasField("exception")
        draining.join()
        assert first.is_closed()
        assert second.is_closed()
        assert len(consumer.batches) == 1
        with pytest.raises(ConnectionError):
            RegionServer(consumer.port).ship(3, ENTRIES)


def test_a_drain_whose_time_is_over_leaves_calls_unanswered() -> None:
    with running_consumer() as consumer, RegionServer(consumer.port) as server:
        consumer.gate.clear()
        server.send(replicate(1, ENTRIES))
        until(lambda: consumer.batches)
        consumer.drain(0.05)
        assert server.is_closed()


def test_a_port_that_is_taken_is_named(consumer: RunningConsumer) -> None:
    with (
        pytest.raises(Unavailable, match=f"port {consumer.port} of 127.0.0.1 cannot be had"),
        running_consumer() as c,
    ):
        c._run(c.server.start("127.0.0.1", [consumer.port]))
