"""Sources of brokers' metrics on real sockets, with any answers, and the file that declares them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rtolap.fleet.monitoring.sources import FleetSources, read_sources
from rtolap.servers.tls import load_context

from tests.support.certificates import Certificates

Answer = tuple[int, bytes]


@contextmanager
def agent(answer: Callable[[Any], Answer], tls: Certificates | None = None) -> Iterator[str]:
    """Serve what `answer` returns for a request; yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            status, content = answer(self)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST

        def log_message(self, *unused: object) -> None:
            """Log nothing, so that the tests' own output can be read."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = load_context(tls.certificate, tls.key).wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}/jolokia"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def declared(tmp_path: Path, text: str) -> FleetSources:
    path = tmp_path / "sources.yaml"
    path.write_text(text)
    path.chmod(0o600)
    return read_sources(path)
