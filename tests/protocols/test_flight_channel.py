"""A peer that has come back is asked again at once."""

from __future__ import annotations

import contextlib
import itertools
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight
from rtolap.base.errors import RtolapError, Unavailable
from rtolap.base.metrics import Metrics
from rtolap.protocols.receiver.client import ReceiverClient
from rtolap.protocols.receiver.messages import HistorySnapshot, PartialQuery
from rtolap.protocols.storage.client import StorageClient
from rtolap.servers.flight_server import GuardedFlightServer

TOKEN = "a-token-of-this-test"
DEADLINE_S = 30.0
LONG_S = 6.5  # of refusals


class Peer(GuardedFlightServer):
    def __init__(self, port: int) -> None:
        super().__init__(host="127.0.0.1", port=port, token=TOKEN, metrics=Metrics("receiver"))

    def list_actions(self, context: Any) -> Any:
        return []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_peer_that_refuses_is_tried_again_at_least_once_a_second() -> None:
    tried_s: list[float] = []
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as refusing:
        refusing.settimeout(0.1)

        def refuse() -> None:
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    refusing.accept()[0].close()
                    tried_s.append(time.monotonic())

        listening = threading.Thread(target=refuse)
        listening.start()
        client = StorageClient(f"127.0.0.1:{refusing.getsockname()[1]}", TOKEN)
        end_s = time.monotonic() + LONG_S
        while time.monotonic() < end_s:
            with pytest.raises(Unavailable):
                client.ping(1.0)
            over.wait(0.05)
        over.set()
        listening.join()
        client.close()
    gaps_s = [after - before for before, after in itertools.pairwise(tried_s)]
    assert max(gaps_s) < 1.5, "gRPC's own back-off has grown to more than 2 s by then"


def test_a_peer_that_starts_late_is_reached() -> None:
    port = free_port()
    client = StorageClient(f"127.0.0.1:{port}", TOKEN)
    with pytest.raises(Unavailable):
        client.ping(1.0)
    with Peer(port):
        end_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                client.ping(1.0)
                break
            except Unavailable:
                assert time.monotonic() < end_s
    client.close()


def test_a_peer_that_accepts_and_says_nothing_fails_the_ping_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = StorageClient(f"127.0.0.1:{silent.getsockname()[1]}", TOKEN)
        with pytest.raises(Unavailable):
            client.ping(0.2)
        client.close()


def test_a_wrong_token_is_told_and_is_not_silence() -> None:
    port = free_port()
    with Peer(port):
        client = StorageClient(f"127.0.0.1:{port}", "another")
        with pytest.raises(RtolapError) as caught:
            client.ping(10.0)
        assert not isinstance(caught.value, Unavailable)
        client.close()


class Dripping(GuardedFlightServer):
    """Sends a batch and then nothing until `go_on` is set."""

    def __init__(self, port: int) -> None:
        super().__init__(host="127.0.0.1", port=port, token=TOKEN, metrics=Metrics("receiver"))
        self.go_on = threading.Event()

    def do_get(self, context: Any, ticket: Any) -> Any:
        batch = pa.record_batch({"n": [1]})

        def batches() -> Iterator[pa.RecordBatch]:
            yield batch
            self.go_on.wait(DEADLINE_S)

        return flight.GeneratorStream(batch.schema, batches())


def test_a_call_that_is_cancelled_from_another_thread_interrupts_nothing_else() -> None:
    port = free_port()
    interrupted = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        with Dripping(port) as server:
            client = ReceiverClient(f"127.0.0.1:{port}", TOKEN)
            query = PartialQuery("cube", (), (), HistorySnapshot({}))

            def cancel_soon(cancel: Callable[[], None]) -> None:
                threading.Timer(0.2, cancel).start()

            with ThreadPoolExecutor(1) as threads:
                asked = threads.submit(client.query, query, on_start=cancel_soon)
                assert isinstance(asked.exception(DEADLINE_S), Unavailable)
            server.go_on.set()
            client.close()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not interrupted.is_set()
