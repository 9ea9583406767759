"""Who listens where a server of the cluster is expected, and has no token; who stands between the two."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
from hpack import Decoder
from pyarrow import flight
from rtolap.base.closeable import Closeable
from rtolap.servers.flight_guard import frames

Headers = dict[str, list[str]]


class _Recording(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    def __init__(self, seen: list[Headers]) -> None:
        self._seen = seen

    def start_call(self, info: Any, headers: Headers) -> None:
        self._seen.append(headers)


class Pretender(flight.FlightServerBase):  # type: ignore[misc]
    """Answers whatever it is asked, without the secret; keeps the heads of all calls."""

    def __init__(self, port: int = 0, error: str = "") -> None:
        self.seen: list[Headers] = []
        self._error = error
        super().__init__(f"grpc+tcp://127.0.0.1:{port}", middleware={"all": _Recording(self.seen)})

    def _answer(self) -> None:
        if self._error:
            raise flight.FlightUnauthenticatedError(self._error)

    def list_actions(self, context: Any) -> Any:
        self._answer()
        return []

    def do_get(self, context: Any, ticket: Any) -> Any:
        self._answer()
        return flight.RecordBatchStream(pa.table({"forged": [1]}))

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        self._answer()
        return iter([flight.Result(b'{"cubes": []}')])

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        self._answer()
        writer.begin(pa.schema([]))


class Between(Closeable):
    """Hands everything on to `port`, and keeps what clients have sent."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.sent = bytearray()
        self._open = [self._listening]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for sock in self._open:
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                client = self._listening.accept()[0]
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self._open += [client, server]
            threading.Thread(target=self._hand_on, args=(client, server, self.sent), daemon=True).start()
            threading.Thread(target=self._hand_on, args=(server, client, bytearray()), daemon=True).start()

    def _hand_on(self, source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        try:
            while data := source.recv(65_536):
                kept += data
                target.sendall(data)
        except OSError:
            return
        finally:
            target.close()


def credentials(sent: bytes) -> list[str]:
    """Return the credentials in the heads of what one connection has sent, unpacked."""
    decoder, found = Decoder(), []
    at = len(frames.PREFACE)
    while at + frames.HEADER_BYTES <= len(sent):
        size, kind, _, _ = frames.parse_header(sent, at)
        at += frames.HEADER_BYTES
        if kind == frames.HEADERS:
            fields = decoder.decode(sent[at : at + size], raw=True)
            found += [bytes(value).decode() for name, value in fields if bytes(name) == b"authorization"]
        at += size
    return found


class HttpPretender(Closeable):
    """Answers every HTTP request with an empty object; keeps the heads and bodies of all."""

    def __init__(self, port: int = 0) -> None:
        self.seen: list[str] = []
        seen = self.seen

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                seen.append(f"{self.requestline}\n{self.headers}\n{body.decode(errors='replace')}")
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_GET = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: the requests are kept."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
