"""Spans of OpenTelemetry around what has ids: optional, and nothing is imported or done where they are off.

They are on where `OTEL_EXPORTER_OTLP_ENDPOINT` is set and the packages are installed (`rtolap[traces]`). Its
other variables say the rest, as for any program: headers, the share of traces that is kept, the service's
name. The parent of a span goes from service to service in `traceparent`, the header of W3C.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any, Final

from rtolap.base.ids import HEADER, ids, note, sent

log = logging.getLogger(__name__)

TRACEPARENT: Final = "traceparent"
TRACE: Final = "trace"  # the id of a request whose spans are sent: its lines name the trace
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_SERVICE = "OTEL_SERVICE_NAME"


class _Spans:
    """Makes spans by a tracer provider of OpenTelemetry."""

    def __init__(self, provider: Any) -> None:
        self._tracer = provider.get_tracer("rtolap")
        self._server_kind = import_module("opentelemetry.trace").SpanKind.SERVER
        self._no_parent = import_module("opentelemetry.context").Context()
        context = import_module("opentelemetry.trace.propagation.tracecontext")
        self._propagator = context.TraceContextTextMapPropagator()

    def inject(self, headers: dict[str, str]) -> None:
        self._propagator.inject(headers)

    @contextmanager
    def below_open(self, name: str) -> Iterator[Any]:
        """Open a span below the one that is open."""
        with self._tracer.start_as_current_span(name) as opened:
            yield from _marked(opened)

    @contextmanager
    def below_header(self, name: str, traceparent: str) -> Iterator[Any]:
        """Open the span of a request, below the one of its header, which may be empty."""
        parent = self._propagator.extract({TRACEPARENT: traceparent}, self._no_parent)
        with self._tracer.start_as_current_span(name, context=parent, kind=self._server_kind) as opened:
            yield from _marked(opened)


_spans: _Spans | None = None  # of this process; None: off


def start_spans(service: str) -> None:
    """Send the spans of this process, where its environment says where to; `service`: its name."""
    if not os.environ.get(ENDPOINT):
        return
    name = os.environ.get(_SERVICE) or service
    try:
        sdk = import_module("opentelemetry.sdk.trace")
        resource = import_module("opentelemetry.sdk.resources").Resource.create({"service.name": name})
        export = import_module("opentelemetry.sdk.trace.export")
        otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError as error:
        log.warning("%s is set, and no span is sent: %s; pip install 'rtolap[traces]'", ENDPOINT, error)
        return
    provider = sdk.TracerProvider(resource=resource)
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter()))
    use(provider)
    log.info("spans of %s go to %s", name, os.environ[ENDPOINT])


def use(provider: Any) -> None:
    """Make spans by a tracer provider; None makes none."""
    global _spans  # noqa: PLW0603 - one of a process, as OpenTelemetry's own
    _spans = None if provider is None else _Spans(provider)


def span(name: str) -> AbstractContextManager[Any]:
    """Return the span of a piece of work, below the one that is open."""
    return nullcontext() if _spans is None else _spans.below_open(name)


def served(name: str, header: Callable[[str], str | None]) -> AbstractContextManager[Any]:
    """Return the span of a request, below the one whose `traceparent` it brings. `header` finds one by name.

    The span is None where spans are off.
    """
    return nullcontext() if _spans is None else _spans.below_header(name, header(TRACEPARENT) or "")


def named(opened: Any, name: str) -> None:
    """Give an open span its name, which is known only now."""
    if opened is not None:
        opened.update_name(name)


def sent_headers() -> dict[str, str]:
    """Return the headers of a request to another service: ids, and the parent of its spans."""
    headers: dict[str, str] = {}
    if known := sent():
        headers[HEADER] = known
    if _spans is not None:
        _spans.inject(headers)
    return headers


def _marked(opened: Any) -> Iterator[Any]:
    """Yield a span, and give it the ids that are known at its end. Lines of its request name its trace."""
    note(**{TRACE: format(opened.get_span_context().trace_id, "032x")})
    try:
        yield opened
    finally:
        for name, value in ids().items():
            if name != TRACE:
                opened.set_attribute(f"rtolap.{name}", value)
