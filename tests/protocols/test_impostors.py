"""Somebody else listens where a client expects a server of its cluster, or stands between the two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest
from pyarrow import flight
from rtolap.base.errors import Impostor, QueryError, RtolapError, Unauthorized
from rtolap.base.metrics import Metrics
from rtolap.protocols.receiver.client import ReceiverClient
from rtolap.protocols.receiver.messages import HistorySnapshot, PartialQuery
from rtolap.protocols.storage import messages as wire
from rtolap.protocols.storage.client import StorageClient
from rtolap.servers.flight_guard import frames
from rtolap.servers.flight_server import GuardedFlightServer, guarded

from tests.support.hostile.flight_frames import RawFlight
from tests.support.hostile.impostors import Between, Pretender, credentials
from tests.support.stored.storage_rows import SCHEMA, rows, tablet

TOKEN = "the-secret-of-this-cluster"
QUERY = PartialQuery("cube", (), (), HistorySnapshot({}))


class Genuine(GuardedFlightServer):
    """Counts what reaches it."""

    def __init__(self, port: int = 0) -> None:
        self.calls = 0
        super().__init__(host="127.0.0.1", port=port, token=TOKEN, metrics=Metrics("receiver"))

    def list_actions(self, context: Any) -> Any:
        self.calls += 1
        return []

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        self.calls += 1
        if action.type == "fail":
            guarded(_fail)
        return iter([flight.Result(b"{}")])


def _fail() -> None:
    raise QueryError("this is the server's own error")


CALLS: dict[str, Callable[[ReceiverClient, StorageClient], object]] = {
    "partial answers": lambda receiver, node: receiver.query(QUERY),
    "stats": lambda receiver, node: receiver.stats(),
    "a ping": lambda receiver, node: receiver.ping(10.0),
    "rows of a load": lambda receiver, node: node.put(wire.PutHead(1, SCHEMA), rows().schema),
    "a scan": lambda receiver, node: node.scan(wire.ScanRequest(tablet(), SCHEMA, 1), 10.0),
    "a node's status": lambda receiver, node: node.status(),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("error", ["", "session_offered", "no sense"])
def test_who_answers_without_the_secret_is_refused_by_name_and_learns_nothing(name: str, error: str) -> None:
    said = {"": "", "no sense": "rubbish"}.get(
        error, 'rtolap-error:{"code": "session_offered", "message": "00.11"}'
    )
    with Pretender(error=said) as pretender:
        address = f"127.0.0.1:{pretender.port}"
        with (
            ReceiverClient(address, TOKEN) as receiver,
            StorageClient(address, TOKEN) as node,
            pytest.raises(Unauthorized, match=address) as caught,
        ):
            CALLS[name](receiver, node)
        if error != "no sense":
            assert isinstance(caught.value, Impostor)
        assert pretender.seen
        assert TOKEN not in str(pretender.seen) + str(caught.value)


def test_who_stands_between_gets_no_proof_and_no_call() -> None:
    with Genuine() as server, Between(server.port) as between:
        with (
            ReceiverClient(f"127.0.0.1:{between.port}", TOKEN) as client,
            pytest.raises(Unauthorized, match="another address"),
        ):
            client.stats()
        (hello,) = credentials(bytes(between.sent))
        assert hello.startswith("Rtolap-Hello ")
        assert TOKEN not in hello
        assert server.calls == 0


def test_what_was_read_on_the_way_opens_nothing() -> None:
    """A neighbour on the network reads all the heads of a session, and sends them again."""
    with Genuine() as server, Between(server.port) as between:
        with closing(ReceiverClient(f"127.0.0.1:{server.port}", TOKEN)) as client:
            client._channel.client.close()
            client._channel.client = flight.FlightClient(
                f"grpc+tcp://127.0.0.1:{between.port}", middleware=client._channel.middleware
            )
            client.action("stats")
            client.action("stats")
        read = credentials(bytes(between.sent))
        assert len(read) == 3, "one hello, two calls"
        calls_before = server.calls
        for line in read:
            with RawFlight(server.port, "") as raw:
                raw.begin()
                block = raw.block("ListActions", None, [("authorization", line)])
                raw.send(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block))
                raw.send(raw.message(1, b""))
                status, _ = raw.status(1)
                assert status == str(frames.UNAUTHENTICATED)
        assert server.calls == calls_before


def test_who_takes_a_servers_place_later_is_refused_and_the_server_is_welcome_again() -> None:
    """The impostor listens at the right address while a session is open."""
    server = Genuine()
    port = server.port
    with ReceiverClient(f"127.0.0.1:{port}", TOKEN) as client:
        client.action("stats")
        server.shutdown()
        with Pretender(port) as pretender:
            with pytest.raises(Impostor, match=str(port)):
                client.action("stats")
            lines = [value for headers in pretender.seen for value in headers.get("authorization", [])]
        with Genuine(port) as again:
            for line in lines:
                with RawFlight(port, "") as raw:
                    raw.begin()
                    block = raw.block("ListActions", None, [("authorization", line)])
                    raw.send(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block))
                    assert raw.status(1)[0] == str(frames.UNAUTHENTICATED)
            assert again.calls == 0
            client.action("stats")
            assert again.calls == 1


def test_a_session_costs_one_exchange_and_no_call_another() -> None:
    with Genuine() as server, Between(server.port) as between:
        with ReceiverClient(f"127.0.0.1:{server.port}", TOKEN) as client:
            client._channel.client.close()
            client._channel.client = flight.FlightClient(
                f"grpc+tcp://127.0.0.1:{between.port}", middleware=client._channel.middleware
            )
            for _ in range(50):
                client.action("stats")
        kinds = [line.split(" ")[0] for line in credentials(bytes(between.sent))]
        assert kinds == ["Rtolap-Hello"] + 50 * ["Rtolap-Call"]
        assert server.calls == 50


def test_errors_of_a_genuine_server_keep_their_names_and_those_of_others_do_not_count() -> None:
    with Genuine() as server, ReceiverClient(f"127.0.0.1:{server.port}", TOKEN) as client:
        with pytest.raises(QueryError, match="own error"):
            client.action("fail")
        port = server.port
        server.shutdown()
        forged = "rtolap-error:" + msgspec.json.encode({"code": "query", "message": "forged"}).decode()
        with Pretender(port, forged), pytest.raises(Impostor):
            client.action("stats")


def test_an_operator_may_send_the_token_to_an_address_of_his_own() -> None:
    with Genuine() as server, RawFlight(server.port, TOKEN) as raw:
        raw.begin()
        raw.send(raw.head(1, "ListActions"))
        raw.send(raw.message(1, b""))
        assert raw.status(1)[0] == "0"


def test_another_clusters_server_is_refused() -> None:
    with Genuine() as server, ReceiverClient(f"127.0.0.1:{server.port}", "of another cluster") as client:
        with pytest.raises(RtolapError, match="does not prove") as caught:
            client.stats()
        assert "of another cluster" not in str(caught.value)
