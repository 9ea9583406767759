"""The client's side of HBase's RPC, against servers that answer, refuse, stall and break off."""

from __future__ import annotations

import struct

import pytest
from rtolap.base.errors import Corrupted, Forbidden, NotFound, Refused, RtolapError, TooLarge, Unavailable
from rtolap.sep.hbase.admin_pb2 import GetClusterStatusRequest, GetClusterStatusResponse
from rtolap.sep.hbase.connection import KEY_VALUE_CODEC, Connection
from rtolap.sep.hbase.rpc_pb2 import RequestHeader

from tests.support.hbase.scripted_server import Answer, ScriptedServer, exception, response, scripted_server

REQUEST = GetClusterStatusRequest(options=[2])


def ask(server: ScriptedServer, *, timeout_s: float = 20.0) -> GetClusterStatusResponse:
    connection = Connection("127.0.0.1", server.port, "MasterService")
    try:
        return connection.call("GetClusterStatus", REQUEST, GetClusterStatusResponse, timeout_s=timeout_s)
    finally:
        connection.close()


def status(header: RequestHeader, _: bytes) -> bytes:
    answer = GetClusterStatusResponse()
    answer.cluster_status.cluster_id.cluster_id = "x" * 70_000  # comes in pieces
    return response(header, answer)


def test_a_call_says_who_asks_for_what_and_by_when() -> None:
    seen = []

    def answer(header: RequestHeader, request: bytes) -> bytes:
        seen.append(header)
        return status(header, request)

    with scripted_server(answer) as server:
        assert ask(server).cluster_status.cluster_id.cluster_id == "x" * 70_000
        (connected,) = server.connections
        assert (connected.user_info.effective_user, connected.service_name) == ("rtolap", "MasterService")
        assert not connected.HasField("cell_block_codec_class")
        assert server.calls == [("GetClusterStatus", b"\x02\x08\x02")]
        assert (seen[0].call_id, seen[0].HasField("call_id"), seen[0].timeout) == (0, True, 20_000)


def test_cells_go_and_come_beside_the_message() -> None:
    def answer(header: RequestHeader, request: bytes) -> bytes:
        assert request.endswith(b"sent") and header.cell_block_meta.length == 4  # noqa: PT018
        return response(header, GetClusterStatusResponse(), b"received")

    with scripted_server(answer) as server:
        connection = Connection("127.0.0.1", server.port, "ClientService", codec=KEY_VALUE_CODEC)
        _, cells = connection.call_with_cells(
            "GetClusterStatus", REQUEST, GetClusterStatusResponse, cells=b"sent"
        )
        connection.close()
        assert cells == b"received"
        assert server.connections[0].cell_block_codec_class == KEY_VALUE_CODEC


def test_a_connection_that_was_closed_while_idle_is_opened_again() -> None:
    with scripted_server(status) as server:
        connection = Connection("127.0.0.1", server.port, "MasterService")
        for _ in range(3):
            connection.call("GetClusterStatus", REQUEST, GetClusterStatusResponse)
        server.hang_up()
        connection.call("GetClusterStatus", REQUEST, GetClusterStatusResponse)
        connection.close()
        assert (len(server.connections), len(server.calls)) == (2, 4)


@pytest.mark.parametrize(
    ("java_class", "kind"),
    [
        ("org.apache.hadoop.hbase.PleaseHoldException", Unavailable),
        ("org.apache.hadoop.hbase.ipc.ServerNotRunningYetException", Unavailable),
        ("org.apache.hadoop.hbase.replication.ReplicationPeerNotFoundException", NotFound),
        ("org.apache.hadoop.hbase.security.AccessDeniedException", Forbidden),
        ("org.apache.hadoop.hbase.DoNotRetryIOException", Refused),
        ("java.lang.IllegalArgumentException", Refused),
    ],
)
def test_refusals_are_told_apart_by_their_class(java_class: str, kind: type[RtolapError]) -> None:
    with scripted_server(lambda header, _: exception(header, java_class, "because of x")) as server:
        with pytest.raises(kind, match="because of x") as caught:
            ask(server)
        assert type(caught.value) is kind
        assert "GetClusterStatus" in str(caught.value)


def test_a_part_of_a_starting_server_that_is_not_there_yet_is_waited_for() -> None:
    text = 'Cannot invoke "x.peers()" because "x" is null\nCaused by: java.lang.NullPointerException'
    with (
        scripted_server(lambda header, _: exception(header, "java.io.IOException", text)) as server,
        pytest.raises(Unavailable, match="not now"),
    ):
        ask(server)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda header, request: struct.pack(">i", -1), id="negative size"),
        pytest.param(lambda header, request: struct.pack(">i", 0), id="empty"),
        pytest.param(lambda header, request: struct.pack(">i", 1 << 30), id="endless"),
        pytest.param(lambda header, request: struct.pack(">i", 4) + b"\xff\xff\xff\xff", id="no message"),
        pytest.param(lambda header, request: struct.pack(">i", 3) + b"\x02\x08\x09", id="another call's"),
        pytest.param(
            lambda header, request: struct.pack(">i", 3) + b"\x02\x08\x00", id="without its message"
        ),
        pytest.param(lambda header, request: b"HTTP/1.1 400 Bad Request\r\n\r\n", id="another protocol"),
    ],
)
def test_what_is_no_answer_is_told_and_the_connection_not_used_again(answer: Answer) -> None:
    with scripted_server(answer) as server:
        connection = Connection("127.0.0.1", server.port, "MasterService", timeout_s=20)
        with pytest.raises(Corrupted, match="answered GetClusterStatus with something else"):
            connection.call("GetClusterStatus", REQUEST, GetClusterStatusResponse)
        server.answer = status
        connection.call("GetClusterStatus", REQUEST, GetClusterStatusResponse)
        connection.close()


def test_an_answer_of_more_than_is_read_is_told_from_a_broken_one() -> None:
    with scripted_server(lambda header, request: struct.pack(">i", 300 << 20)) as server:
        connection = Connection("127.0.0.1", server.port, "MasterService", timeout_s=20)
        with pytest.raises(TooLarge):
            connection.call("GetClusterStatus", REQUEST, GetClusterStatusResponse)
        server.answer = status
        connection.call("GetClusterStatus", REQUEST, GetClusterStatusResponse)
        connection.close()


def test_a_server_that_is_silent_hangs_up_or_is_not_there_is_unavailable() -> None:
    with scripted_server(lambda header, request: b"") as server:
        with pytest.raises(Unavailable, match=r"no answer within 0\.2 s"):
            ask(server, timeout_s=0.2)
        server.answer = lambda header, request: None
        with pytest.raises(Unavailable, match="the connection was closed"):
            ask(server)
        server.answer = lambda header, request: status(header, request)[:100]
        with pytest.raises(Unavailable, match=r"no answer within 0\.2 s"):
            ask(server, timeout_s=0.2)
    with pytest.raises(Unavailable, match="did not answer GetClusterStatus"):
        ask(server)
