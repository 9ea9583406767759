"""What a Flight server takes in before it knows who asks, and what one client can keep from the others."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from hpack import Encoder
from pyarrow import flight
from rtolap.base.errors import TooLarge, Unauthorized, Unavailable
from rtolap.base.metrics import Metrics
from rtolap.protocols.flight.client import named
from rtolap.servers.flight_guard import frames
from rtolap.servers.flight_guard.calls import BrokenConnection, Calls
from rtolap.servers.flight_server import GuardedFlightServer
from rtolap.servers.limits import FlightLimits

from tests.support.hostile.exhausted_listener import ExhaustedListener
from tests.support.hostile.flight_frames import RawFlight, ticket
from tests.support.scrape import Scrape
from tests.support.waiting import until

TOKEN = "a-token-of-this-test"
DEADLINE_S = 60.0
LIMITS = FlightLimits()
ROWS = 131_072  # of a batch of 1 MiB
MIB = 1 << 20
BATCH = pa.record_batch({"n": pa.array(range(ROWS), pa.int64())})
OPTIONS = flight.FlightCallOptions(
    timeout=DEADLINE_S, headers=[(b"authorization", f"Bearer {TOKEN}".encode())]
)
BARE = flight.FlightCallOptions(timeout=DEADLINE_S)


class Answering(GuardedFlightServer):
    """Ticket `3`: three batches; `hold`: batches until `go_on` is set. Actions are answered by themselves."""

    def __init__(self, limits: FlightLimits = LIMITS) -> None:
        self.metrics = Metrics("receiver")
        self.go_on = threading.Event()
        self.holding = threading.Semaphore(0)
        self.ended_holds = 0
        super().__init__(host="127.0.0.1", port=0, token=TOKEN, metrics=self.metrics, limits=limits)

    def do_get(self, context: Any, ticket: Any) -> Any:
        if ticket.ticket == b"hold":
            return flight.GeneratorStream(BATCH.schema, self._hold())
        return flight.GeneratorStream(BATCH.schema, iter([BATCH] * int(ticket.ticket)))

    def _hold(self) -> Iterator[pa.RecordBatch]:
        self.holding.release()
        try:
            while not self.go_on.wait(0.01):
                yield BATCH
            yield BATCH.slice(0, 7)
        finally:
            self.ended_holds += 1

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        rows = sum(chunk.data.num_rows for chunk in reader)
        writer.write(pa.py_buffer(str(rows).encode()))

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        return iter([flight.Result(action.body.to_pybytes())])

    def ended(self, reason: str) -> float:
        return self._scrape()("rtolap_receiver_flight_connections_ended_total", reason=reason)

    def refused(self, reason: str) -> float:
        return self._scrape()("rtolap_receiver_flight_calls_refused_total", reason=reason)

    def open_connections(self) -> float:
        return self._scrape()("rtolap_receiver_flight_connections")

    def _scrape(self) -> Scrape:
        return Scrape(self.metrics.render()[0].decode())

    def __exit__(self, *about: object) -> None:
        self.go_on.set()
        self.shutdown()


@contextlib.contextmanager
def good_client(port: int) -> Iterator[flight.FlightClient]:
    with flight.FlightClient(f"grpc+tcp://127.0.0.1:{port}") as client:
        yield client


def echo(client: flight.FlightClient, body: bytes) -> bytes:
    (result,) = client.do_action(flight.Action("echo", body), OPTIONS)
    return bytes(result.body)


def check_good_client(port: int) -> None:
    """Whatever the others do, one with the token gets what it asks for."""
    with good_client(port) as client:
        assert echo(client, b"once") == b"once"
        table = client.do_get(flight.Ticket(b"2"), OPTIONS).read_all()
        assert table.equals(pa.Table.from_batches([BATCH] * 2))


class Memory:
    """The most that this process has grown by, in bytes, since the block began."""

    def __enter__(self) -> Memory:
        self._process = psutil.Process()
        self._before_bytes = self._process.memory_info().rss
        self.grown_bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *about: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.005):
            grown_bytes = self._process.memory_info().rss - self._before_bytes
            self.grown_bytes = max(self.grown_bytes, grown_bytes)


def send_ticket(port: int, token: str, size: int) -> str:
    """From another process, so that this one's memory is the server's: the error that it gets."""
    program = (
        "import sys, pyarrow.flight as f\n"
        "port, token, size = sys.argv[1:]\n"
        "headers = [(b'authorization', token.encode())]\n"
        "options = f.FlightCallOptions(timeout=60, headers=headers)\n"
        "try:\n"
        "    client, ticket = f.FlightClient(f'grpc+tcp://127.0.0.1:{port}'), f.Ticket(b'1' * int(size))\n"
        "    client.do_get(ticket, options).read_all()\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(port), token, str(size)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S * 2,
        check=True,
    )
    return run.stdout


# -- before credentials ---------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["Bearer guess", ""])
def test_a_large_ticket_without_the_token_is_not_taken_in(token: str) -> None:
    with Answering() as server:
        check_good_client(server.port)
        with Memory() as memory:
            said = send_ticket(server.port, token, 96 * MIB)
        assert said.startswith("FlightUnauthenticatedError")
        assert "the token is missing or wrong" in said
        assert memory.grown_bytes < 48 * MIB
        assert server.refused("unauthorized") == 1
        check_good_client(server.port)


def test_a_ticket_beyond_the_bound_is_refused_by_name() -> None:
    with Answering(replace(LIMITS, message_bytes_max=MIB)) as server:
        check_good_client(server.port)
        with Memory() as memory:
            said = send_ticket(server.port, f"Bearer {TOKEN}", 96 * MIB)
        assert memory.grown_bytes < 48 * MIB
        assert isinstance(named("the server", "get", RuntimeError(said)), TooLarge)
        assert server.refused("too_large") == 1
        with good_client(server.port) as client:
            with pytest.raises(Exception, match="at most 1048576 bytes") as caught:
                echo(client, bytes(2 * MIB))
            assert isinstance(named("the server", "echo", caught.value), TooLarge)
            assert echo(client, b"x" * 1000) == b"x" * 1000


def _send(writer: Any, reader: Any, batch: pa.RecordBatch) -> int:
    """Return how many rows the server says that it took."""
    writer.write_batch(batch)
    writer.done_writing()
    answer = reader.read()
    writer.close()  # raises what the server has ended the call with
    return int(answer.to_pybytes())


def test_a_batch_of_rows_has_a_bound_of_its_own() -> None:
    with Answering(replace(LIMITS, batch_bytes_max=3 * MIB, message_bytes_max=1000)) as server:
        with good_client(server.port) as client:
            path = flight.FlightDescriptor.for_path("rows")
            writer, reader = client.do_put(path, BATCH.schema, OPTIONS)
            assert _send(writer, reader, BATCH) == ROWS  # 1 MiB, more than another message may have
            large = pa.record_batch({"n": pa.array(range(4 * ROWS), pa.int64())})
            writer, reader = client.do_put(path, BATCH.schema, OPTIONS)
            with pytest.raises(Exception, match="at most 3145728 bytes") as caught:
                _send(writer, reader, large)
            assert isinstance(named("the server", "put", caught.value), TooLarge)
            assert echo(client, b"x") == b"x"
        assert server.refused("too_large") == 1


def test_more_calls_at_a_time_than_are_announced_end_the_connection() -> None:
    with Answering(replace(LIMITS, calls_max=3)) as server:
        with RawFlight(server.port, TOKEN) as client:
            client.begin()
            client.send(b"".join(client.head(stream) for stream in (1, 3, 5)))  # none of them ends
            client.send(client.head(7))
            client.frames()
        assert server.ended("restless") == 1
        check_good_client(server.port)


def test_a_call_without_the_token_on_a_connection_that_had_it_is_refused_alone() -> None:
    with Answering() as server, good_client(server.port) as client:
        held = client.do_get(flight.Ticket(b"hold"), OPTIONS)
        assert held.read_chunk().data.num_rows == ROWS
        for _ in range(3):
            with pytest.raises(flight.FlightUnauthenticatedError) as caught:
                list(client.do_action(flight.Action("echo", b"x" * 100_000), BARE))
            assert isinstance(named("the server", "echo", caught.value), Unauthorized)
        server.go_on.set()
        last = 0
        for chunk in held:
            last = chunk.data.num_rows
        assert last == 7
        assert server.refused("unauthorized") == 3


def test_compressed_messages_are_refused() -> None:
    with Answering() as server, RawFlight(server.port, TOKEN) as client:
        client.begin()
        client.send(client.head(1) + client.message(1, ticket(b"1"), compressed=1))
        status, text = client.status(1)
        assert (status, "compressed" in text) == (str(frames.UNIMPLEMENTED), True)
        client.send(client.head(3) + client.message(3, ticket(b"0")))
        assert client.status(3)[0] == "0"


def long_head(client: RawFlight, token: str | None, stream: int) -> None:
    block = client.block("DoGet", token, [(f"x-{n}", "y" * 4000) for n in range(256)])
    pieces = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
    client.send(frames.frame(frames.HEADERS, 0, stream, pieces[0]))
    for piece in pieces[1:-1]:
        client.send(frames.frame(frames.CONTINUATION, 0, stream, piece))
    client.send(frames.frame(frames.CONTINUATION, frames.END_HEADERS, stream, pieces[-1]))


@pytest.mark.parametrize("token", [None, TOKEN])
@pytest.mark.parametrize("stream", [1, 3], ids=["the first", "a later one"])
def test_a_head_of_a_megabyte_ends_the_connection(token: str | None, stream: int) -> None:
    with Answering() as server, RawFlight(server.port, TOKEN) as client:
        client.begin()
        if stream == 3:
            client.send(client.head(1) + client.message(1, ticket(b"0")))
            assert client.status(1)[0] == "0"
        long_head(client, token, stream)
        client.frames()
        assert server.ended("long_head") == 1
        check_good_client(server.port)


def test_a_small_head_that_unpacks_to_much_ends_the_connection() -> None:
    with Answering() as server, RawFlight(server.port, TOKEN) as client:
        client.begin()
        block = client.block("DoGet", None, [("x-long", "y" * 3000)]) + b"\xbe" * 1000
        client.send(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block))
        assert client.frames()[-1].kind == frames.GOAWAY
        assert server.ended("long_head") == 1
        check_good_client(server.port)


# -- connections ----------------------------------------------------------------------------------------


def test_silent_connections_keep_nobody_out() -> None:
    limits = replace(
        LIMITS, head_timeout_s=DEADLINE_S * 10, connections_max=60, connections_per_address_max=50
    )
    with Answering(limits) as server, contextlib.ExitStack() as silent:
        with good_client(server.port) as client:
            assert echo(client, b"before") == b"before"
            for n in range(300):
                one = silent.enter_context(socket.create_connection(("127.0.0.1", server.port), DEADLINE_S))
                if n % 2:
                    one.sendall(frames.PREFACE)
                if not n % 50:
                    check_good_client(server.port)
            assert echo(client, b"after") == b"after"
        assert server.open_connections() <= 50


@pytest.mark.parametrize(
    "first",
    [
        b"",
        frames.PREFACE[:10],
        frames.PREFACE,
        frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0),
        frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0)[:5],
        frames.PREFACE + frames.frame(frames.HEADERS, 0, 1, b"\x83")[:9],
    ],
    ids=["nothing", "half a preface", "a preface", "settings", "half a frame", "a frame's header"],
)
def test_a_connection_without_a_call_ends(first: bytes) -> None:
    with Answering(replace(LIMITS, head_timeout_s=0.2)) as server:
        with RawFlight(server.port, TOKEN) as client:
            client.send(first)
            kinds = [one.kind for one in client.frames()]
        assert kinds == [frames.SETTINGS, frames.GOAWAY]
        assert server.ended("slow_head") == 1
        until(lambda: server.open_connections() == 0)


def test_who_has_shown_the_token_may_be_silent() -> None:
    with Answering(replace(LIMITS, head_timeout_s=0.3)) as server, good_client(server.port) as client:
        assert echo(client, b"first") == b"first"
        with RawFlight(server.port, TOKEN) as silent:
            silent.frames()  # has ended, which the other has outlived
        assert echo(client, b"second") == b"second"
        until(lambda: server.open_connections() == 1)


def test_where_all_are_at_work_one_more_is_refused() -> None:
    with (
        Answering(replace(LIMITS, connections_per_address_max=2)) as server,
        contextlib.ExitStack() as at_work,
    ):
        for _ in range(2):
            assert echo(at_work.enter_context(good_client(server.port)), b"x") == b"x"
        with good_client(server.port) as third, pytest.raises(flight.FlightUnavailableError):
            echo(third, b"x")
        assert server.ended("refused") >= 1


def test_accepting_goes_on_when_there_are_descriptors_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listening_sockets(what: str, host: str, port: int) -> list[socket.socket]:
        listening = ExhaustedListener()
        listening.bind((host, port))
        return [listening]

    monkeypatch.setattr("rtolap.servers.flight_server.listening_sockets", listening_sockets)
    with Answering() as server:
        check_good_client(server.port)
        assert server.ended("no_descriptors") == 3
    assert "Too many open files" in caplog.text


SERVE_WITH_FEW_DESCRIPTORS = """
import os, resource, sys
from rtolap.base.metrics import Metrics
from rtolap.servers.flight_server import GuardedFlightServer

class Empty(GuardedFlightServer):
    def list_actions(self, context):
        return [("only", "one")]

server = Empty(host="127.0.0.1", port=0, token=sys.argv[1], metrics=Metrics("receiver"))
used = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (used + 30, used + 30))
print(server.port, flush=True)
sys.stdin.read()
"""


def test_silent_connections_that_take_all_descriptors_keep_nobody_out() -> None:
    command = [sys.executable, "-c", SERVE_WITH_FEW_DESCRIPTORS, TOKEN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with contextlib.ExitStack() as silent, good_client(port) as client:
            for _ in range(150):
                silent.enter_context(socket.create_connection(("127.0.0.1", port), DEADLINE_S))
            assert len(list(client.list_actions(OPTIONS))) == 1
        process.kill()


def test_a_client_that_takes_nothing_is_cut_off() -> None:
    with Answering(replace(LIMITS, write_timeout_s=0.3)) as server, RawFlight(server.port, TOKEN) as client:
        client.begin()
        window = frames.frame(frames.WINDOW_UPDATE, 0, 0, struct.pack(">I", (1 << 31) - 1 - 65_535))
        wide = frames.frame(frames.SETTINGS, 0, 0, struct.pack(">HI", 0x4, (1 << 31) - 1))
        client.send(window + wide + client.head(1) + client.message(1, ticket(b"hold")))
        until(lambda: server.ended("slow_reader") == 1)
        until(lambda: server.ended_holds == 1)
        check_good_client(server.port)


# -- frames ---------------------------------------------------------------------------------------------

CALM = 200
RESTLESS = replace(LIMITS, restless_frames_max=CALM, restless_frames_per_s=1.0)


def reset_storm(client: RawFlight) -> bytes:
    streams = range(1, 3 * CALM, 2)
    return b"".join(client.head(stream) + frames.reset(stream, frames.CANCEL) for stream in streams)


def wrong_tokens(client: RawFlight) -> bytes:
    streams = range(3, 3 * CALM, 2)
    return client.head(1) + b"".join(client.head(stream, token="no") for stream in streams)


def after_a_call(what: bytes) -> Callable[[RawFlight], bytes]:
    return lambda client: client.head(1) + client.message(1, ticket(b"1"), end=False) + what * (CALM + 50)


@pytest.mark.parametrize(
    "storm",
    [
        reset_storm,
        after_a_call(frames.frame(frames.RST_STREAM, frames.ACK, 1, bytes(4))),
        after_a_call(frames.frame(frames.PING, frames.ACK, 0, bytes(8))),
        after_a_call(frames.frame(frames.WINDOW_UPDATE, 0, 0, struct.pack(">I", 1))),
        after_a_call(frames.frame(frames.PING, 0, 0, bytes(8))),
        after_a_call(frames.frame(frames.SETTINGS, 0, 0)),
        after_a_call(frames.frame(frames.PRIORITY, 0, 1, bytes(5))),
        after_a_call(frames.frame(frames.DATA, 0, 1)),
        after_a_call(frames.frame(0x77, 0, 0, bytes(8))),
        wrong_tokens,
    ],
    ids=[
        "resets",
        "flagged resets",
        "acknowledgements of nothing",
        "windows",
        "pings",
        "settings",
        "priorities",
        "empty data",
        "unknown",
        "wrong tokens",
    ],
)
def test_frames_that_bring_nothing_end_the_connection(storm: Callable[[RawFlight], bytes]) -> None:
    """All of it comes at once: gRPC itself ends a connection for a few pings, too."""
    with Answering(RESTLESS) as server:
        with RawFlight(server.port, TOKEN) as client:
            client.begin()
            client.send(storm(client))
            client.frames()
        assert server.ended("restless") == 1
        until(lambda: server.open_connections() == 0)
        check_good_client(server.port)


def drawn_frame(rng: random.Random) -> tuple[int, bytes]:
    """Return a frame that HTTP/2 lets a client send within a call and that brings nothing, and its kind.

    All flags are drawn but those that have a frame refused or go on with another one.
    """
    kind = rng.choice([*range(frames.PRIORITY, 10), rng.randrange(10, 256), frames.DATA])
    flags, stream = rng.randrange(256), rng.choice([0, 1])
    size = rng.randrange(40)
    if kind in (frames.PUSH_PROMISE, frames.CONTINUATION):
        kind = frames.RST_STREAM
    if kind == frames.DATA:
        flags, size = flags & ~frames.PADDED, rng.randrange(frames.MESSAGE_PREFIX_BYTES)
    size = {frames.PRIORITY: 5, frames.RST_STREAM: 4, frames.PING: 8, frames.WINDOW_UPDATE: 4}.get(kind, size)
    if kind in (frames.SETTINGS, frames.PING, frames.GOAWAY):
        stream = 0
    elif kind in (frames.DATA, frames.PRIORITY, frames.RST_STREAM):
        stream = 1
    return kind, frames.frame(kind, flags, stream, bytes(size))


@pytest.mark.parametrize("seed", range(20))
def test_every_frame_counts_whatever_its_kind_flags_and_length(seed: int) -> None:
    """One kind at a time, and all of them together: the count ends the connection after its limit."""
    rng = random.Random(seed)
    drawn: dict[int, list[bytes]] = {}
    for _ in range(40 * CALM):
        kind, frame = drawn_frame(rng)
        drawn.setdefault(kind, []).append(frame)
    mixed = [frame for one in drawn.values() for frame in one]
    rng.shuffle(mixed)
    for storm in (mixed, *(one for one in drawn.values() if len(one) > 3 * CALM)):
        calls = Calls(TOKEN, RESTLESS, lambda: 0.0)
        head = encoded_head(TOKEN)
        calls.feed(memoryview(frames.PREFACE + frames.frame(frames.HEADERS, frames.END_HEADERS, 1, head)))
        for frame in storm[:CALM]:
            cut = rng.randrange(len(frame) + 1)
            calls.feed(memoryview(frame[:cut]))
            calls.feed(memoryview(frame[cut:]))
        with pytest.raises(BrokenConnection) as broken:
            calls.feed(memoryview(b"".join(storm[CALM : CALM + FREE_OF_A_CALL + 1])))
        assert broken.value.reason == "restless"


FREE_OF_A_CALL = 6  # its end, four updates of windows, and the acknowledgement of the guard's own settings


def encoded_head(token: str) -> bytes:
    fields = [(":method", "POST"), (":path", "/x/DoGet"), ("authorization", f"Bearer {token}")]
    return bytes(Encoder().encode(fields, huffman=False))


def test_frames_that_are_due_do_not_count() -> None:
    """Acknowledgements of what the server sent, and windows that grow by what it answered."""
    calls = Calls(TOKEN, RESTLESS, lambda: 0.0)
    head = frames.frame(frames.HEADERS, frames.END_HEADERS, 1, encoded_head(TOKEN))
    calls.feed(memoryview(frames.PREFACE + frames.frame(frames.SETTINGS, frames.ACK, 0) + head))
    for _ in range(5 * CALM):
        for kind, payload in ((frames.PING, bytes(8)), (frames.SETTINGS, b"")):
            calls.answered(kind, 0)
            calls.feed(memoryview(frames.frame(kind, frames.ACK, 0, payload)))
        calls.answered(frames.DATA, 0)
        calls.feed(memoryview(frames.window_update(16_384)))
        calls.feed(memoryview(frames.frame(frames.WINDOW_UPDATE, 0, 1, struct.pack(">I", 16_384))))


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        frames.PREFACE + frames.frame(frames.PING, 0, 0, bytes(8)) * 10_000,
        frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0) * 10_000,
        frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0, bytes(6) * 2000) * 8,
        frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0, bytes(6) * 5000),
        frames.PREFACE
        + frames.frame(frames.HEADERS, 0, 1)
        + frames.frame(frames.CONTINUATION, 0, 1) * 10_000,
        frames.PREFACE + frames.frame(frames.HEADERS, 0, 1) + frames.frame(frames.DATA, 0, 1, b"x"),
        frames.PREFACE + frames.frame(frames.DATA, 0, 1, bytes(1000)) * 100,
        frames.PREFACE + frames.reset(1, frames.CANCEL),
        frames.PREFACE + frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, b"\x83"),
        frames.PREFACE + frames.frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
        frames.PREFACE + frames.frame(frames.HEADERS, frames.END_HEADERS, 0, b"\x83"),
        frames.PREFACE + frames.frame(frames.PUSH_PROMISE, frames.END_HEADERS, 1, b"\x83"),
    ],
    ids=[
        "HTTP/1.1",
        "TLS",
        "pings",
        "settings",
        "large settings",
        "too large settings",
        "continuations",
        "an unended head",
        "data first",
        "a reset first",
        "a continuation first",
        "a head that is none",
        "a head on no stream",
        "a promise",
    ],
)
def test_what_is_no_call_ends_the_connection(sent: bytes) -> None:
    with Answering() as server, Memory() as memory:
        with RawFlight(server.port, TOKEN) as client:
            client.send(sent)
            client.frames()
        until(lambda: server.open_connections() == 0)
        check_good_client(server.port)
        assert memory.grown_bytes < 64 * MIB


def mutated(rng: random.Random, client: RawFlight) -> tuple[bytes, int]:
    """Some frames, right ones among them, and then a few bytes changed, cut out or put in; and how many."""
    pieces = [frames.PREFACE, frames.frame(frames.SETTINGS, 0, 0)]
    for stream in range(1, 1 + 2 * rng.randint(5, 15), 2):
        token = rng.choice([TOKEN, TOKEN, TOKEN, "no", None])
        choices = [
            client.head(stream, rng.choice(["DoGet", "DoAction", "DoPut", "Nothing"]), token),
            client.message(stream, ticket(b"0"), compressed=int(rng.random() < 0.2), end=rng.random() < 0.7),
            frames.frame(rng.randrange(12), rng.randrange(256), stream, rng.randbytes(rng.randrange(40))),
            frames.frame(frames.PING, rng.randrange(2), 0, rng.randbytes(8)),
            frames.reset(stream, rng.randrange(14)),
        ]
        pieces += choices[:2] if rng.random() < 0.6 else rng.choices(choices, k=2)
    data = bytearray(b"".join(pieces))
    for _ in range(rng.choice([0, 1, 1, 2, 8])):
        at = rng.randrange(len(data))
        match rng.randrange(3):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                del data[at : at + rng.randrange(30)]
            case _:
                data[at:at] = rng.randbytes(rng.randrange(30))
    return bytes(data), len(pieces)


def test_ten_thousand_mutated_frames_leave_the_server_as_it_was() -> None:
    rng = random.Random(20_261_122)
    with Answering(replace(LIMITS, head_timeout_s=1.0)) as server, good_client(server.port) as client:
        assert echo(client, b"warm") == b"warm"
        with Memory() as memory:
            sent = 0
            while sent < 10_000:
                with RawFlight(server.port, TOKEN) as hostile:
                    data, count = mutated(rng, hostile)
                    cut = rng.randrange(len(data))
                    if hostile.send(data[:cut]) and hostile.send(data[cut:]):
                        with contextlib.suppress(OSError):
                            hostile.sock.shutdown(socket.SHUT_WR)
                    hostile.frames()  # until it is through with all
                    sent += count
                if rng.random() < 0.1:
                    body = rng.randbytes(100)
                    assert echo(client, body) == body
        assert memory.grown_bytes < 128 * MIB
        assert server.ended("protocol") > 100
        assert server.ended("unauthorized") > 20
        assert server.refused("compressed") > 10
        check_good_client(server.port)
        until(lambda: server.open_connections() <= 1)


# -- what goes on as before ------------------------------------------------------------------------------


def test_hundreds_of_megabytes_go_both_ways() -> None:
    with Answering() as server, good_client(server.port) as client:
        writer, reader = client.do_put(flight.FlightDescriptor.for_path("rows"), BATCH.schema, OPTIONS)
        for _ in range(200):
            writer.write_batch(BATCH)
        writer.done_writing()
        assert int(reader.read().to_pybytes()) == 200 * ROWS
        writer.close()
        rows = total = 0
        for chunk in client.do_get(flight.Ticket(b"200"), OPTIONS):
            rows += chunk.data.num_rows
            total += pa.compute.sum(chunk.data["n"]).as_py()
        assert (rows, total) == (200 * ROWS, 200 * ROWS * (ROWS - 1) // 2)


def test_calls_of_one_connection_do_not_mix() -> None:
    with Answering() as server, good_client(server.port) as client, ThreadPoolExecutor(12) as threads:

        def ask(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(10):
                if rng.random() < 0.3:
                    wanted = rng.randint(1, 8)
                    table = client.do_get(flight.Ticket(str(wanted).encode()), OPTIONS).read_all()
                    assert table.equals(pa.Table.from_batches([BATCH] * wanted))
                elif rng.random() < 0.3:
                    held = client.do_get(flight.Ticket(b"hold"), OPTIONS)
                    held.read_chunk()
                    held.cancel()
                else:
                    body = rng.randbytes(rng.choice([0, 1, 1000, 300_000]))
                    assert echo(client, body) == body

        for asked in [threads.submit(ask, seed) for seed in range(12)]:
            asked.result(DEADLINE_S)
        assert server.ended("restless") == 0
        assert server.ended("protocol") == 0


def test_a_call_that_is_cancelled_ends_at_the_server() -> None:
    with Answering() as server, good_client(server.port) as client:
        held = client.do_get(flight.Ticket(b"hold"), OPTIONS)
        held.read_chunk()
        held.cancel()
        until(lambda: server.ended_holds == 1)
        assert echo(client, b"x") == b"x"


@pytest.mark.parametrize("how", ["closed", "reset", "half-closed"])
def test_a_client_that_vanishes_ends_its_call_at_the_server(how: str) -> None:
    with Answering() as server, RawFlight(server.port, TOKEN) as client:
        client.begin()
        client.send(client.head(1) + client.message(1, ticket(b"hold")))
        assert server.holding.acquire(timeout=DEADLINE_S)
        if how == "half-closed":
            client.sock.shutdown(socket.SHUT_WR)
        else:
            if how == "reset":
                client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sock.close()
        until(lambda: server.ended_holds == 1)
        until(lambda: server.open_connections() == 0)


def test_a_server_that_ends_lets_its_last_call_end() -> None:
    with Answering() as server, good_client(server.port) as client:
        held = client.do_get(flight.Ticket(b"hold"), OPTIONS)
        held.read_chunk()
        ending = threading.Thread(target=server.shutdown)
        ending.start()
        port = server.port
        until(lambda: not accepts(port))
        server.go_on.set()
        last = 0
        for chunk in held:
            last = chunk.data.num_rows
        assert last == 7
        ending.join(DEADLINE_S)
        assert not ending.is_alive()
        with good_client(port) as late, pytest.raises(flight.FlightUnavailableError):
            echo(late, b"x")


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_port_that_is_taken_is_told() -> None:
    with Answering() as server, pytest.raises(Unavailable, match="take another port"):
        GuardedFlightServer(host="127.0.0.1", port=server.port, token=TOKEN, metrics=Metrics("receiver"))


def test_the_way_around_the_guard_is_this_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/tmp" if len(str(tmp_path)) > 60 else str(tmp_path))
    with Answering() as server:
        folder = server._folder.path
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        with Answering():
            assert folder.exists(), "another server's, which lives"
        check_good_client(server.port)
    assert not folder.exists()
    left = folder.with_name("rtolap-flight-left")
    left.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(os.fspath(left / "s"))
    empty, made_now = (folder.with_name(f"rtolap-flight-{name}") for name in ("empty", "now"))
    for each in (empty, made_now):
        each.mkdir()
    os.utime(empty, (0, 0))
    with Answering():
        assert not left.exists()
        assert not empty.exists()
        assert made_now.exists(), "it is not locked yet"
    made_now.rmdir()
