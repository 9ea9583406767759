"""Services are reached directly, whatever proxy the environment names; what is not rtolap's is not."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pyarrow import flight
from pyspark.sql.connect.session import SparkSession
from rtolap.base.errors import Unavailable
from rtolap.base.metrics import Metrics
from rtolap.base.settings import Settings
from rtolap.coordinator.applications.host_lists import _fetched as fetched_list
from rtolap.kafka.schema_registry import SchemaRegistries
from rtolap.protocols.flight.channel import FlightChannel
from rtolap.protocols.rest.clients import async_service_client, service_client
from rtolap.query.spark.connections import Connection
from rtolap.query.spark.service import SparkService
from rtolap.servers.flight_server import GuardedFlightServer

from tests.support.hostile.recording_proxy import VARIABLES, RecordingProxy, recording_proxy
from tests.support.paths import PLUGINS

TOKEN = "a token"
_PLACE = PLUGINS / "rtolap" / "protocols" / "rest" / "clients.py"
_MAKES_CLIENTS = {"Client", "AsyncClient", "get", "post", "put", "request", "stream"}


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingProxy]:
    """The proxy of this process's environment."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with recording_proxy() as made:
        for name in VARIABLES:
            monkeypatch.setenv(name, made.url)
        yield made


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"here")

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def page() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class _Peer(GuardedFlightServer):
    def __init__(self) -> None:
        super().__init__(host="127.0.0.1", port=0, token=TOKEN, metrics=Metrics("receiver"))

    def list_actions(self, context: Any) -> Any:
        return []

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        return iter([action.body])


def by_http(url: str) -> bytes:
    with service_client() as client:
        return client.get(url).content


def by_http_in_a_loop(url: str) -> bytes:
    async def ask() -> bytes:
        async with async_service_client() as client:
            return (await client.get(url)).content

    return asyncio.run(ask())


@pytest.mark.parametrize("ask", [by_http, by_http_in_a_loop])
def test_http_reaches_a_service_directly(
    proxy: RecordingProxy, page: str, ask: Callable[[str], bytes]
) -> None:
    assert ask(page) == b"here"
    assert proxy.asked == []


def test_flight_reaches_a_service_directly(proxy: RecordingProxy) -> None:
    with contextlib.ExitStack() as closing:
        peer = _Peer()
        closing.callback(peer.shutdown)
        channel = FlightChannel("peer", f"127.0.0.1:{peer.port}", TOKEN)
        closing.callback(channel.close)
        answered = channel.call(
            "echo",
            lambda headers: [
                bytes(result.body)
                for result in channel.client.do_action(
                    flight.Action("echo", b"here"), flight.FlightCallOptions(timeout=30, headers=headers)
                )
            ],
        )
    assert answered == [b"here"]
    assert proxy.asked == []


def test_spark_is_asked_directly(proxy: RecordingProxy) -> None:
    connection = Connection.open(SparkService("sc://localhost:9", TOKEN))  # where nobody listens
    with pytest.raises(Exception, match="connect"):
        connection.session.client.semantic_hash(
            SparkSession.range(connection.session, 1)._plan.to_proto(connection._client)
        )
    assert proxy.asked == []


def test_what_is_not_rtolap_s_is_asked_for_by_the_proxy(proxy: RecordingProxy) -> None:
    registries = SchemaRegistries.of_host(Settings(schema_registry="http://registry.invalid:8081"))
    with contextlib.suppress(Exception):
        registries.get("default").schema(7)
    registries.close()
    with pytest.raises(Unavailable, match="gives no host list"):
        fetched_list("http://inventory.invalid/hosts")
    assert proxy.asked == ["http://registry.invalid:8081/schemas/ids/7", "http://inventory.invalid/hosts"]


def test_every_client_is_one_of_services_or_says_whether_it_follows_the_environment() -> None:
    """A client that says nothing would follow it."""
    silent = [
        f"{path.relative_to(PLUGINS)}:{call.lineno}"
        for path in sorted(PLUGINS.rglob("*.py"))
        if path != _PLACE
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "httpx"
        and call.func.attr in _MAKES_CLIENTS
        and not any(each.arg == "trust_env" for each in call.keywords)
    ]
    assert silent == []


# Each follows the environment in its own way. Those that are there are of what is not rtolap's, of an error's
# class, or read the variables.
OTHER_LIBRARIES: dict[str, set[str]] = {
    "requests": {"rtolap/publish/catalog.py"},
    "grpc": {"rtolap/query/spark/errors.py"},
    "urllib.request": {"rtolap/stack/inherited.py"},
    "urllib3": set(),
    "aiohttp": set(),
}


@pytest.mark.parametrize("library", sorted(OTHER_LIBRARIES))
def test_no_further_library_reaches_a_service(library: str) -> None:
    imports = re.compile(rf"^(?:import|from) {re.escape(library)}\b", re.MULTILINE)
    found = {
        str(path.relative_to(PLUGINS)) for path in PLUGINS.rglob("*.py") if imports.search(path.read_text())
    }
    assert found == OTHER_LIBRARIES[library]


def test_channels_of_flight_are_opened_in_one_place() -> None:
    found = [path for path in PLUGINS.rglob("*.py") if "flight.FlightClient(" in path.read_text()]
    assert [path.relative_to(PLUGINS).as_posix() for path in found] == ["rtolap/protocols/flight/client.py"]
