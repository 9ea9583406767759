"""A server that speaks HBase's RPC by a script: for clients that meet slow, rude and broken ones."""

from __future__ import annotations

import io
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from google.protobuf import proto
from google.protobuf.message import Message
from rtolap.sep.hbase.rpc_pb2 import ConnectionHeader, ExceptionResponse, RequestHeader, ResponseHeader

Answer = Callable[[RequestHeader, bytes], bytes | None]
"""(header, the request's bytes) → what is sent; None closes the connection, b"" leaves it waiting"""


class ScriptedServer:
    """A server that answers by a script. `calls` are (method, bytes of the request) in the order of arrival;
    `connections` are their headers."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.calls: list[tuple[str, bytes]] = []
        self.connections: list[ConnectionHeader] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(10)

    def hang_up(self) -> None:
        """Close what is open, as a server that was idle for long."""
        for connection in self._open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed already
        self._open.clear()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            assert stream.read(6) == b"HBas\x00\x50"
            self.connections.append(ConnectionHeader.FromString(_frame(stream)))
            while frame := _frame(stream):
                body = io.BytesIO(frame)
                header = proto.parse_length_prefixed(RequestHeader, body)
                assert header is not None
                request = body.read()
                self.calls.append((header.method_name, request))
                sent = self.answer(header, request)
                if sent is None:
                    return
                connection.sendall(sent)


@contextmanager
def scripted_server(answer: Answer) -> Iterator[ScriptedServer]:
    server = ScriptedServer(answer)
    try:
        yield server
    finally:
        server.close()


def response(header: RequestHeader, message: Message, cells: bytes = b"") -> bytes:
    head = ResponseHeader(call_id=header.call_id)
    if cells:
        head.cell_block_meta.length = len(cells)
    return _answer(head, message, cells)


def exception(header: RequestHeader, class_name: str, text: str = "") -> bytes:
    raised = ExceptionResponse(exception_class_name=class_name, stack_trace=f"{class_name}: {text}\n\tat X")
    return _answer(ResponseHeader(call_id=header.call_id, exception=raised), None, b"")


def _answer(header: ResponseHeader, message: Message | None, cells: bytes) -> bytes:
    body = io.BytesIO()
    proto.serialize_length_prefixed(header, body)
    if message is not None:
        proto.serialize_length_prefixed(message, body)
    body.write(cells)
    return struct.pack(">i", len(body.getvalue())) + body.getvalue()


def _frame(stream: io.BufferedReader) -> bytes:
    """Return a frame, which is empty at the end of the stream."""
    try:
        size = stream.read(4)
        return stream.read(struct.unpack(">i", size)[0]) if len(size) == 4 else b""
    except OSError:
        return b""
