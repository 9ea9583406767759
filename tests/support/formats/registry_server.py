"""A schema registry over HTTP or HTTPS: the answers of Confluent's REST that consumers rest on.

The forms are those of its documentation and of version 7.6: a schema's answer leaves `schemaType` out for
Avro; an unknown id is 404 with the `error_code` 40403, an unknown subject 40401, a version that it lacks
40402; a wrong password is 401 with 40101.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.certificates import Certificates

_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryServer:
    """The state of a registry.

    Attributes:
        schemas: answers by id.
        subjects: answers by subject and version.
        user: name and password that clients must give; None for anybody.
        token: the bearer token that clients must give; None for none.
        broken: a status and a body that every request gets instead.
        asked: the paths of all requests.
    """

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[tuple[str, int], dict[str, Any]] = {}
        self.user: tuple[str, str] | None = None
        self.token: str | None = None
        self.broken: tuple[int, bytes] | None = None
        self.asked: list[str] = []
        self.url = ""

    def answer(self, path: str, authorization: str | None) -> tuple[int, bytes]:
        self.asked.append(path)
        if self.broken is not None:
            return self.broken
        expected = None if self.token is None else f"Bearer {self.token}"
        if self.user is not None:
            expected = "Basic " + base64.b64encode(":".join(self.user).encode()).decode()
        if authorization != expected:
            return _error(401, 40101, "Unauthorized")
        parts = urlsplit(path)
        match [unquote(step) for step in parts.path.strip("/").split("/")]:
            case ["schemas", "ids", number]:
                found, code = self.schemas.get(int(number)), 40403
            case ["subjects", subject, "versions", version]:
                found = self.subjects.get((subject, int(version)))
                code = 40402 if any(known == subject for known, _ in self.subjects) else 40401
            case _:
                return 404, b"<html>Not Found</html>"
        if found is None:
            return _error(404, code, "Schema not found")
        shown = {name: value for name, value in found.items() if name != "serialized"}
        if parse_qs(parts.query).get("format") == ["serialized"]:
            shown["schema"] = found["serialized"]
        return 200, json.dumps(shown).encode()


def _error(status: int, code: int, message: str) -> tuple[int, bytes]:
    return status, json.dumps({"error_code": code, "message": message}).encode()


@contextmanager
def running_registry(certificates: Certificates | None = None, port: int = 0) -> Iterator[RegistryServer]:
    """Serve a registry on a port of 127.0.0.1, with TLS where certificates are given."""
    registry = RegistryServer()
    with serving(registry, certificates, port):
        yield registry


@contextmanager
def serving(
    registry: RegistryServer, certificates: Certificates | None = None, port: int = 0
) -> Iterator[RegistryServer]:
    """Serve a registry that is there already, again perhaps, on the port that it had."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = registry.answer(self.path, self.headers.get("Authorization"))
            self.send_response(status)
            self.send_header("Content-Type", _TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Keep the output of tests short."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    scheme = "http"
    if certificates is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.certificate, certificates.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    registry.url = f"{scheme}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
