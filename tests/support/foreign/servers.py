"""Front ends and a backend over real sockets, as a client of Doris or StarRocks meets them.

    front end   checks credentials, answers loads and second phases with 307, before any body and with the
                credentials in `Location`; Doris looks at `redirect-policy`, and its errors come with HTTP 200
    backend     plain HTTP only; wants `Expect: 100-continue`, answers 200 with the outcome in JSON

A request may be cut: its connection breaks before it is carried out, or before its answer.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import msgspec
from rtolap.base.errors import Unavailable
from rtolap.protocols.stream_load.messages import SendOptions, TableSchema, TwoPhaseAnswer

from tests.support.foreign.cluster import ForeignCluster

Kind = Literal["doris", "starrocks"]
Cut = Literal["before", "after"]
USER, PASSWORD = "loader", "open:sesame"
HOST = "127.0.0.1"


@dataclass
class Seen:
    """A request that has reached a server, for tests."""

    server: str
    method: str
    path: str
    headers: dict[str, str]


@dataclass
class ForeignServers:
    """Running servers.

    Attributes:
        cut: says whether a request of a server (`fe`, `be`) for a path is cut, and where.
        redirect_scheme: the scheme of redirects to the backend.
        redirect_hosts: the host of the backend by redirect policy; `` is the default.
        answers: replies by (method, path) in place of the true ones: status, body.
    """

    kind: Kind
    cluster: ForeignCluster
    urls: tuple[str, ...] = ()
    backend_port: int = 0
    cut: Callable[[str, str], Cut | None] = lambda server, path: None
    redirect_scheme: str = "http"
    redirect_hosts: dict[str, str] = field(default_factory=lambda: {"": HOST})
    answers: dict[tuple[str, str], tuple[int, bytes]] = field(default_factory=dict)
    has_transactions: bool = True
    seen: list[Seen] = field(default_factory=list)

    def seen_by(self, server: str) -> list[Seen]:
        return [one for one in self.seen if one.server == server]


@contextmanager
def foreign_servers(
    kind: Kind, cluster: ForeignCluster, *, front_ends: int = 1, tls: ssl.SSLContext | None = None
) -> Iterator[ForeignServers]:
    servers = ForeignServers(kind, cluster)
    with ExitStack() as closing:
        backend = closing.enter_context(_served(servers, "be", None))
        servers.backend_port = backend.server_address[1]
        scheme = "https" if tls else "http"
        ports = [
            closing.enter_context(_served(servers, "fe", tls)).server_address[1] for _ in range(front_ends)
        ]
        servers.urls = tuple(f"{scheme}://{HOST}:{port}" for port in ports)
        yield servers


@contextmanager
def _served(servers: ForeignServers, name: str, tls: ssl.SSLContext | None) -> Iterator[ThreadingHTTPServer]:
    class Handler(_Handler):
        around = servers
        server_name = name

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that goes away is no fault of the server."""

    server = Server((HOST, 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    around: ForeignServers
    server_name: str

    def handle_expect_100(self) -> bool:
        return True  # the body is asked for once it is wanted

    def log_message(self, format: str, *args: Any) -> None:
        """Tests look at `seen`."""

    def do_GET(self) -> None:
        self._handle()

    def do_PUT(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def _handle(self) -> None:
        self.close_connection = True
        around, path = self.around, urlsplit(self.path).path
        headers = {name.lower(): value for name, value in self.headers.items()}
        around.seen.append(Seen(self.server_name, self.command, self.path, headers))
        cut = around.cut(self.server_name, path)
        if cut == "before":
            return
        if (given := around.answers.get((self.command, path))) is not None:
            status, body, location = *given, None
        else:
            try:
                status, body, location = self._answer(path, headers)
            except Unavailable as error:
                status, body, location = 503, str(error).encode(), None
        if cut == "after":
            return
        self.send_response(status)
        if location is not None:
            self.send_header("Location", location)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, path: str, headers: dict[str, str]) -> tuple[int, bytes, str | None]:
        around = self.around
        basic = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if headers.get("authorization") != f"Basic {basic}":
            if around.kind == "doris":  # HTTP says that all is well
                return 200, _json({"msg": "Unauthorized", "code": 401, "data": "Access denied"}), None
            return 401, _json({"status": "FAILED", "msg": "Access denied for " + USER}), None
        if around.kind == "starrocks" and path.startswith("/api/transaction/"):
            if not around.has_transactions:
                return 404, b"Not Found", None
            return self._transaction(path.rpartition("/")[2], headers)
        parts = path.strip("/").split("/")
        match parts:
            case ["api", db, "get_load_state"]:
                return self._state(db)
            case ["api", db, table, "_schema"]:
                return self._schema(db, table)
            case ["api", db, table, "_stream_load"]:
                return self._stream_load(db, table, headers)
            case ["api", db, "_stream_load_2pc"] if around.kind == "doris":
                return self._second_phase(db, headers)
            case _:
                return (200 if path == "/" else 404), b"<html>a page for people</html>", None

    def _redirect(self, headers: dict[str, str]) -> tuple[int, bytes, str | None]:
        around = self.around
        policy = headers.get("redirect-policy", "") if around.kind == "doris" else ""
        host = around.redirect_hosts.get(policy, around.redirect_hosts[""])
        user = f"{USER}:{PASSWORD.replace(':', '%3A')}@" if around.kind == "doris" else ""
        where = f"{around.redirect_scheme}://{user}{host}:{around.backend_port}{self.path}"
        return 307, b"", where

    def _state(self, db: str) -> tuple[int, bytes, str | None]:
        label = parse_qs(urlsplit(self.path).query)["label"][0]
        state = str(self.around.cluster.state(db, label))
        if self.around.kind == "doris":
            return 200, _json({"msg": "success", "code": 0, "data": state, "count": 0}), None
        state = "PREPARED" if state == "PRECOMMITTED" else state
        return 200, _json({"status": "OK", "msg": "Success", "state": state, "reason": ""}), None

    def _schema(self, db: str, table: str) -> tuple[int, bytes, str | None]:
        around = self.around
        schema = around.cluster.tables.get((db, table))
        if schema is None:
            if around.kind == "doris":
                return 200, _json({"msg": "Error", "code": 1, "data": f"unknown table {table}"}), None
            return 404, _json({"status": 404, "exception": f"Table [{table}] does not exists"}), None
        found = _foreign_schema(schema, around.kind)
        if around.kind == "doris":
            return 200, _json({"msg": "success", "code": 0, "data": found, "count": 0}), None
        return 200, _json(found), None

    def _stream_load(self, db: str, table: str, headers: dict[str, str]) -> tuple[int, bytes, str | None]:
        if "expect" not in headers:
            return 200, _json({"status": "FAILED", "msg": "There is no 100-continue header"}), None
        if self.server_name == "fe":
            return self._redirect(headers)
        two_phase = headers.get("two_phase_commit") == "true"
        body, options = self._body(headers), _options(headers)
        answer = self.around.cluster.load(db, table, headers["label"], body, options, two_phase=two_phase)
        return 200, msgspec.json.encode(answer), None

    def _second_phase(self, db: str, headers: dict[str, str]) -> tuple[int, bytes, str | None]:
        if self.server_name == "fe":
            return self._redirect(headers)
        cluster = self.around.cluster
        label = headers.get("label") or cluster.label_of_txn(int(headers["txn_id"]))
        commits = headers["txn_operation"] == "commit"
        answer = cluster.commit_label(db, label) if commits else cluster.roll_back(db, label)
        return 200, msgspec.json.encode(answer), None

    def _transaction(self, operation: str, headers: dict[str, str]) -> tuple[int, bytes, str | None]:
        cluster, db, label = self.around.cluster, headers["db"], headers["label"]
        on_front_end = operation in ("commit", "rollback") and cluster.is_prepared(db, label)
        if self.server_name == "fe" and not on_front_end:
            return self._redirect(headers)
        match operation:
            case "begin":
                timeout_s = int(headers.get("timeout", "600"))
                found = cluster.begin_transaction(db, headers["table"], label, timeout_s)
            case "load":
                found = cluster.load_into(db, label, self._body(headers), _options(headers))
            case "prepare":
                found = cluster.prepare(db, label)
            case "commit":
                found = _of_starrocks(cluster.commit_label(db, label))
            case _:
                found = _of_starrocks(cluster.roll_back(db, label))
        return 200, _json(found), None

    def _body(self, headers: dict[str, str]) -> bytes:
        if "expect" in headers:
            self.send_response_only(100)
            self.end_headers()
        return self.rfile.read(int(headers["content-length"]))


def _options(headers: dict[str, str]) -> SendOptions:
    return SendOptions(
        format=headers.get("format", "csv"),  # type: ignore[arg-type]
        timeout_s=int(headers.get("timeout", "600")),
        max_filter_ratio=float(headers.get("max_filter_ratio", "0")),
    )


def _foreign_schema(schema: TableSchema, kind: Kind) -> dict[str, Any]:
    """Neither states if a column takes null."""
    columns = [
        {"name": column.name, "type": column.type, "comment": column.comment}
        | ({"aggregation_type": column.aggregation_type} if kind == "doris" else {})
        | ({"precision": column.precision, "scale": column.scale} if column.precision else {})
        for column in schema.properties
    ]
    return {"status": 200, "properties": columns} | (
        {"keysType": schema.keys_type} if kind == "doris" else {}
    )


def _of_starrocks(answer: TwoPhaseAnswer) -> dict[str, Any]:
    already = "already committed" in answer.msg or "already visible" in answer.msg
    return {"Status": "OK" if answer.status == "Success" or already else "FAILED", "Message": answer.msg}


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
