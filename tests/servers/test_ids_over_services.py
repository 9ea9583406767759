"""Ids and spans over drawn chains of services: by HTTP and Flight, in threads of pools, on real sockets."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pyarrow import flight
from rtolap.base import spans
from rtolap.base.ids import HEADER, CarryingPool, bound, ids
from rtolap.base.metrics import Metrics
from rtolap.protocols.flight.channel import FlightChannel, Headers
from rtolap.protocols.rest.clients import service_client
from rtolap.servers.flight_server import GuardedFlightServer
from rtolap.servers.http_guard import guard
from rtolap.servers.http_server import HttpConnections, HttpServer
from rtolap.servers.limits import HttpLimits

from tests.support.waiting import until

TOKEN = "a token"
Kind = Literal["http", "flight"]
log = logging.getLogger("rtolap.test.hop")


@dataclass
class Services:
    """A service by HTTP and one by Flight; each says in its log that it was called, and calls the next."""

    url: str = ""
    said: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    pool: CarryingPool = field(default_factory=lambda: CarryingPool(8))  # chains are shorter
    http: httpx.Client = field(
        default_factory=lambda: service_client(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)
    )
    channel: FlightChannel | None = None

    def hop(self, left: list[tuple[Kind, bool]], done: int) -> None:
        """Call the rest of a chain: each by its kind, from this thread or from one of the pool."""
        if not left:
            return
        (kind, pooled), *rest = left
        call = self._by_http if kind == "http" else self._by_flight
        if pooled:
            self.pool.submit(call, rest, done).result(60)
        else:
            call(rest, done)

    def called(self, kind: Kind, body: str) -> None:
        left, done = json.loads(body)
        self.said.append((f"{kind} {done}", dict(ids())))
        with spans.span(f"work {done}"):
            self.hop([(each, pooled) for each, pooled in left], done + 1)

    def _by_http(self, left: list[tuple[Kind, bool]], done: int) -> None:
        self.http.post(f"{self.url}/hop", json=[left, done]).raise_for_status()

    def _by_flight(self, left: list[tuple[Kind, bool]], done: int) -> None:
        channel = self.channel
        assert channel is not None
        action = flight.Action("hop", json.dumps([left, done]).encode())

        def act(headers: Headers) -> None:
            list(channel.client.do_action(action, flight.FlightCallOptions(timeout=60, headers=headers)))

        channel.call("hop", act)


class Hops(GuardedFlightServer):
    def __init__(self, called: Callable[[Kind, str], None]) -> None:
        super().__init__(host="127.0.0.1", port=0, token=TOKEN, metrics=Metrics("receiver"))
        self._called = called

    def list_actions(self, context: Any) -> Any:
        return []

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        self._called("flight", action.body.to_pybytes().decode())
        return iter([])


@pytest.fixture(scope="module")
def services() -> Iterator[Services]:
    made = Services()
    app = FastAPI()

    @app.post("/hop")
    def hop(left_and_done: list[Any]) -> None:
        made.called("http", json.dumps(left_and_done))

    metrics, limits = Metrics("receiver"), HttpLimits()
    guard(app, metrics, TOKEN, limits=limits)
    with contextlib.ExitStack() as closing:
        listening = closing.enter_context(socket.create_server(("127.0.0.1", 0)))
        server = HttpServer(app, HttpConnections(metrics, limits), lifespan="off")
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        until(lambda: server.started, "the server listens")
        made.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        by_flight = Hops(made.called)
        closing.callback(by_flight.shutdown)
        made.channel = FlightChannel("hops", f"127.0.0.1:{by_flight.port}", TOKEN)
        closing.callback(made.channel.close)
        closing.callback(made.http.close)
        closing.enter_context(made.pool)
        yield made
        server.should_exit = True
        thread.join(30)


@pytest.fixture(scope="module")
def exported() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans.use(provider)
    yield exporter
    spans.use(None)


CHAINS = st.lists(st.tuples(st.sampled_from(["http", "flight"]), st.booleans()), min_size=1, max_size=5)


@settings(max_examples=40)
@given(chain=CHAINS)
def test_every_service_of_a_chain_logs_the_ids_of_its_beginning_and_spans_nest_as_the_calls_do(
    services: Services, exported: InMemorySpanExporter, chain: list[tuple[Kind, bool]]
) -> None:
    services.said.clear()
    exported.clear()
    with bound(statement="s-1", load="l-1"), spans.span("door"):
        services.hop(chain, 0)
    assert [name for name, _ in services.said] == [f"{kind} {place}" for place, (kind, _) in enumerate(chain)]
    for _, known in services.said:
        assert (known["statement"], known["load"]) == ("s-1", "l-1")
    ended = lambda: len(exported.get_finished_spans()) == 2 * len(chain) + 1  # noqa: E731
    until(ended, "all spans have ended")
    found = exported.get_finished_spans()
    assert len({each.context.trace_id for each in found if each.context is not None}) == 1
    expected = ["door"]
    for place, (kind, _) in enumerate(chain):
        expected += ["POST /hop" if kind == "http" else "do_action", f"work {place}"]
    assert nested(found) == expected
    for each in found:
        attributes = each.attributes or {}
        assert (attributes["rtolap.statement"], attributes["rtolap.load"]) == ("s-1", "l-1")


def nested(found: tuple[ReadableSpan, ...]) -> list[str]:
    """Names of spans from the outermost to the innermost, of which each is the only one in the last."""
    below = {each.parent.span_id if each.parent else None: each for each in found}
    assert len(below) == len(found), "two spans are in one"
    names: list[str] = []
    at = None
    while at in below:
        each = below[at]
        names.append(each.name)
        at = each.context.span_id if each.context is not None else None
    return names


def test_a_request_without_ids_has_one_of_its_own_and_the_next_one_another(services: Services) -> None:
    services.said.clear()
    for _ in range(2):
        services.hop([("http", False), ("flight", False)], 0)
    first, first_next, second, second_next = (known["request"] for _, known in services.said)
    assert first == first_next != second == second_next


@pytest.mark.parametrize("header", ["x" * 9000, "=", "a=1;" * 400, "statement=a\tb; evil=<b>", "ä=1"])
def test_what_a_client_sends_as_ids_breaks_nothing(services: Services, header: str) -> None:
    services.said.clear()
    answer = services.http.post(
        f"{services.url}/hop", json=[[], 0], headers={HEADER: header.encode("latin-1")}
    )
    assert answer.status_code in (200, 431)
    for _, known in services.said:
        assert all(value.isprintable() and " " not in value for value in known.values())


def test_spans_are_off_unless_the_environment_names_an_endpoint(
    monkeypatch: pytest.MonkeyPatch, exported: InMemorySpanExporter
) -> None:
    spans.use(None)
    monkeypatch.delenv(spans.ENDPOINT, raising=False)
    spans.start_spans("rtolap-test")
    assert spans.sent_headers() == {}
    with spans.span("nothing") as opened:
        assert opened is None
