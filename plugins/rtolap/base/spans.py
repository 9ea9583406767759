"""Spans of OpenTelemetry around what has ids: optional, and nothing is imported or done where they are off.

They are on where `OTEL_EXPORTER_OTLP_ENDPOINT` is set and the packages are installed (`rtolap[traces]`). Its
other variables say the rest, as for any program: headers, the share of traces that is kept, the service's
name. The parent of a span goes from service to service in `traceparent`, the header of W3C, and to a process
that works for the same request in the variable `TRACEPARENT`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any, Final

from rtolap.base import ids as ids_of
from rtolap.base.ids import HEADER, ids, note, sent

log = logging.getLogger(__name__)

TRACEPARENT: Final = "traceparent"
VARIABLE: Final = "TRACEPARENT"  # of a child's environment
TRACE: Final = "trace"  # the id of a request whose spans are sent: its lines name the trace
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_SERVICE = "OTEL_SERVICE_NAME"


class _Spans:
    """Makes spans by a tracer provider of OpenTelemetry."""

    def __init__(self, provider: Any) -> None:
        self._tracer = provider.get_tracer("rtolap")
        trace = import_module("opentelemetry.trace")
        self._server_kind = trace.SpanKind.SERVER
        self._error = trace.StatusCode.ERROR
        self._contexts = import_module("opentelemetry.context")
        self._no_parent = self._contexts.Context()
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

    @contextmanager
    def below_other(self, traceparent: str) -> Iterator[None]:
        """Open no span: those that are opened within are below one of another process."""
        parent = self._propagator.extract({TRACEPARENT: traceparent}, self._no_parent)
        token = self._contexts.attach(parent)
        try:
            yield
        finally:
            self._contexts.detach(token)

    def measured(self, name: str, took_ns: int, error: str, attributes: Mapping[str, str | int]) -> None:
        now_ns = time.time_ns()
        made = self._tracer.start_span(name, start_time=now_ns - took_ns, attributes=dict(attributes))
        for known, value in ids().items():
            if known != TRACE:
                made.set_attribute(f"rtolap.{known}", value)
        if error:
            made.set_status(self._error, error)
        made.end(now_ns)


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


def under(traceparent: str) -> AbstractContextManager[None]:
    """Have spans that are opened within be below that of another process; of an empty text, below none."""
    return nullcontext() if _spans is None else _spans.below_other(traceparent)


def measured(name: str, took_ns: int, *, error: str = "", **attributes: str | int) -> None:
    """Make the span of what ends now and has taken so long elsewhere, below the one that is open."""
    if _spans is not None:
        _spans.measured(name, took_ns, error, attributes)


def named(opened: Any, name: str) -> None:
    """Give an open span its name, which is known only now."""
    if opened is not None:
        opened.update_name(name)


def handed_over() -> dict[str, str]:
    """Return the environment by which a child process works for the ids of this thread, and its spans are
    below the one that is open; empty without either."""
    parent: dict[str, str] = {}
    if _spans is not None:
        _spans.inject(parent)
    found = {VARIABLE: parent[TRACEPARENT]} if TRACEPARENT in parent else {}
    return {**ids_of.handed_over(), **found}


def parent_of(environment: Mapping[str, str]) -> str:
    """Return the parent of the spans of a process, as its environment names it; "" where it names none."""
    return environment.get(VARIABLE, "")


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
