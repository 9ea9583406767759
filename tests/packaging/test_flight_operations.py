"""Tests of what receivers and storage nodes answer over Arrow Flight to whom."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pytest
from pyarrow import flight
from rtolap.base.metrics import Metrics
from rtolap.cubes.receiver.flight import ReceiverFlightServer
from rtolap.protocols.receiver.messages import PartialQuery, ReceiverStats
from rtolap.protocols.storage import messages as wire
from rtolap.stored.node.flight import StorageFlightServer
from rtolap.stored.node.node import LocalNode
from rtolap.stored.node.process import node_metrics
from rtolap.stored.node.settings import StorageSettings

from tests.support.http_apps import PASSWORD, USERS
from tests.support.pages.texts import text_of

TOKEN = "a cluster's token"
ROLES = ("nobody", "a user", "a loader", "a definer", "the token")
TIMEOUT_S = 60.0


class SilentDesk:
    """A receiver's service that has nothing to say: who is let in is all that is asked here."""

    def query(self, query: PartialQuery) -> pa.Table:
        return pa.table({})

    def stats(self) -> ReceiverStats:
        raise AssertionError("let in")

    def pause(self, cube: str, paused: bool) -> None: ...

    def checkpoint(self, cube: str) -> None: ...

    def close_segments(self, cube: str, segments: list[str]) -> None: ...


class Operation(NamedTuple):
    """`calls`: actions, or one of the other calls of Flight."""

    what: str
    server: str
    calls: tuple[str, ...]
    roles: tuple[str, ...]


OPERATIONS = (
    Operation("partial answers", "receiver", ("do_get",), ("the token",)),
    Operation(
        "state, pause, checkpoint, end of segments",
        "receiver",
        ("stats", "pause", "resume", "checkpoint", "close_segments", "list_actions"),
        ("the token",),
    ),
    Operation("rows of tablets, and copies of them", "storage node", ("do_get",), ("the token",)),
    Operation("rows of a load", "storage node", ("do_exchange",), ("the token",)),
    Operation(
        "tablets and the phases of loads", "storage node", (*wire.ACTIONS, "list_actions"), ("the token",)
    ),
)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    folder = tmp_path_factory.mktemp("node")
    with LocalNode("a", folder, lambda address: pytest.fail("nobody to ask"), StorageSettings()) as node:
        servers = {
            "receiver": ReceiverFlightServer(
                SilentDesk(), host="127.0.0.1", port=0, token=TOKEN, metrics=Metrics("receiver")
            ),
            "storage node": StorageFlightServer(
                node, host="127.0.0.1", port=0, token=TOKEN, metrics=node_metrics(node)
            ),
        }
        yield {name: server.port for name, server in servers.items()}
        for server in servers.values():
            server.shutdown()


def credentials(role: str) -> list[str]:
    """Values of the header that somebody of this role could send."""
    if role == "nobody":
        return ["", "Bearer ", "Bearer wrong"]
    if role == "the token":
        return [f"Bearer {TOKEN}"]
    user = USERS[ROLES.index(role) - 1]
    return [f"Basic {base64.b64encode(f'{user}:{PASSWORD}'.encode()).decode()}", f"Bearer {PASSWORD}"]


def call(name: str) -> Callable[[flight.FlightClient, flight.FlightCallOptions], object]:
    match name:
        case "do_get":
            return lambda client, options: client.do_get(flight.Ticket(b"{}"), options).read_all()
        case "list_actions":
            return lambda client, options: list(client.list_actions(options))
        case "do_exchange":
            return exchange
        case _:
            return lambda client, options: list(client.do_action(flight.Action(name, b"{}"), options))


def exchange(client: flight.FlightClient, options: flight.FlightCallOptions) -> None:
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b"{}"), options)
    with writer:
        writer.done_writing()
        reader.read_chunk()


def is_let_in(port: int, name: str, authorization: str) -> bool:
    """Return whether the call comes to the server: what it then answers to a request of nothing is all the
    same."""
    headers = [(b"authorization", authorization.encode())] if authorization else []
    options = flight.FlightCallOptions(timeout=TIMEOUT_S, headers=headers)
    with flight.connect(f"grpc://127.0.0.1:{port}") as client:
        try:
            call(name)(client, options)
        except flight.FlightUnauthenticatedError:
            return False
        except flight.FlightTimedOutError:
            raise
        except (pa.ArrowException, flight.FlightError, StopIteration):
            return True
    return True


@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_do_what_the_table_says(ports: dict[str, int], role: str) -> None:
    wrong = [
        f"{operation.server} {name}: {authorization!r}"
        for operation in OPERATIONS
        for name in operation.calls
        for authorization in credentials(role)
        if is_let_in(ports[operation.server], name, authorization) is not (role in operation.roles)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_action_of_the_servers_is_in_the_table(ports: dict[str, int]) -> None:
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
    for server, port in ports.items():
        with flight.connect(f"grpc://127.0.0.1:{port}") as client:
            offered = {action.type for action in client.list_actions(options)}
        listed = {name for operation in OPERATIONS if operation.server == server for name in operation.calls}
        assert offered
        assert offered <= listed


def test_the_page_on_security_has_this_table() -> None:
    lines = ["| over Flight | server | " + " | ".join(ROLES) + " |", "|---" * (2 + len(ROLES)) + "|"]
    for each in OPERATIONS:
        may = " | ".join("yes" if role in each.roles else "" for role in ROLES)
        lines.append(f"| {each.what} | {each.server} | {may} |")
    assert "\n".join(lines) in text_of("security"), "the table is:\n" + "\n".join(lines)
