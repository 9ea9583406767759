"""What takes spans over OTLP, and says which it has got.

`Collector` is OpenTelemetry's own: its OTLP receiver and its file exporter, in a program that only joins them
(`otlp_collector`). Building it takes more than a minute of two processors, so that it is built by hand, by
`make otlp-collector`; tests that want it are skipped where it was not. `Messages` is a server of ours, which
reads requests by OpenTelemetry's official messages: it shows what is sent, not that a collector takes it.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from rtolap.stack.artifacts import cache_dir
from rtolap.stack.ports import free_port

from tests.support.telemetry.log_lines import json_lines
from tests.support.waiting import until

COLLECTOR = Path(os.environ.get("RTOLAP_TEST_OTLP_COLLECTOR", cache_dir() / "otlp-collector" / "collector"))
TRACES = "/v1/traces"


class Received(NamedTuple):
    """A span as a receiver has got it. `trace`: 32 hexadecimal digits."""

    service: str
    name: str
    trace: str
    span: str
    parent: str
    attributes: dict[str, str]


class Receiver(Protocol):
    """Takes spans from `start` to `close`. `endpoint`: for OTEL_EXPORTER_OTLP_ENDPOINT."""

    endpoint: str

    def spans(self) -> list[Received]: ...

    def close(self) -> None: ...


class Collector:
    """OpenTelemetry's collector, as a process."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "spans.jsonl"
        port = free_port(set())
        self.endpoint = f"http://127.0.0.1:{port}"
        settings = {
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
            "exporters": {"file": {"path": str(self._file), "flush_interval": "100ms"}},
            "service": {
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["file"]}},
                "telemetry": {"metrics": {"level": "none"}},
            },
        }
        (folder / "collector.yaml").write_text(json.dumps(settings))  # JSON is YAML
        self._log = folder / "collector.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(COLLECTOR), f"--config=file:{folder / 'collector.yaml'}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(self._is_ready, lambda: f"the collector is ready: {self._log.read_text()}")

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        return "Everything is ready" in self._log.read_text()

    def spans(self) -> list[Received]:
        if not self._file.exists():
            return []
        return [span for line in json_lines(self._file.read_text()) for span in _spans(line)]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)


class Messages:
    """A server that reads requests by the official messages."""

    def __init__(self, _folder: Path) -> None:
        self._got: list[dict[str, Any]] = []
        got = self._got

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                request = ExportTraceServiceRequest.FromString(body)
                got.append(MessageToDict(request))
                self.send_response(200 if self.path == TRACES else 404)
                self.send_header("content-type", "application/x-protobuf")
                self.end_headers()
                self.wfile.write(ExportTraceServiceResponse().SerializeToString())

            def log_message(self, format: str, *arguments: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def spans(self) -> list[Received]:
        return [_hexadecimal(span) for request in list(self._got) for span in _spans(request)]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _spans(request: dict[str, Any]) -> Iterator[Received]:
    """Yield the spans of a request in OTLP's JSON."""
    for resource in request["resourceSpans"]:
        service = _attributes(resource["resource"]["attributes"])["service.name"]
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                yield Received(
                    service,
                    span["name"],
                    span["traceId"],
                    span["spanId"],
                    span.get("parentSpanId", ""),
                    _attributes(span.get("attributes", ())),
                )


def _attributes(pairs: Iterable[dict[str, Any]]) -> dict[str, str]:
    return {pair["key"]: pair["value"].get("stringValue", "") for pair in pairs}


def _hexadecimal(span: Received) -> Received:
    """Return the span with ids as OTLP's JSON has them; that of protobuf in general has base64."""

    def digits(text: str) -> str:
        return base64.b64decode(text).hex()

    return span._replace(trace=digits(span.trace), span=digits(span.span), parent=digits(span.parent))
