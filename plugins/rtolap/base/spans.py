"""Spans of OpenTelemetry around what has ids: optional, and nothing is imported or done where they are off.

They are on where `OTEL_EXPORTER_OTLP_ENDPOINT` is set and the packages are installed (`rtolap[traces]`). Its
other variables say the rest, as for any program: headers, the share of traces that is kept, the service's
name. The parent of a span goes from service to service in `traceparent`, the header of W3C.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

from rtolap.base.ids import HEADER, ids, sent

log = logging.getLogger(__name__)

TRACEPARENT: Final = "traceparent"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_SERVICE = "OTEL_SERVICE_NAME"

_tracer: Any = None  # of this process; None: off


def start_spans(service: str) -> None:
    """Send the spans of this process, where its environment says where to; `service`: its name."""
    if not os.environ.get(ENDPOINT):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - it is optional
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        log.warning("%s is set, and no span is sent: %s; pip install 'rtolap[traces]'", ENDPOINT, error)
        return
    name = os.environ.get(_SERVICE) or service
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    use(provider)
    log.info("spans of %s go to %s", name, os.environ[ENDPOINT])


def use(provider: Any) -> None:
    """Make spans by a tracer provider; None makes none."""
    global _tracer  # noqa: PLW0603 - one of a process, as OpenTelemetry's own
    _tracer = None if provider is None else provider.get_tracer("rtolap")


def span(name: str) -> AbstractContextManager[Any]:
    """Return the span of a piece of work, below the one that is open."""
    return nullcontext() if _tracer is None else _open(name, None)


def served(name: str, header: Callable[[str], str | None]) -> AbstractContextManager[Any]:
    """Return the span of a request, below the one whose `traceparent` it brings. `header` finds one by name.

    The span is None where spans are off.
    """
    return nullcontext() if _tracer is None else _open(name, header(TRACEPARENT) or "")


def named(opened: Any, name: str) -> None:
    """Give an open span its name, which is known only now, and the ids that became known."""
    if opened is not None:
        opened.update_name(name)
        _mark(opened)


def sent_headers() -> dict[str, str]:
    """Return the headers of a request to another service: ids, and the parent of its spans."""
    headers: dict[str, str] = {}
    if known := sent():
        headers[HEADER] = known
    if _tracer is not None:
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 - it is optional
            TraceContextTextMapPropagator,
        )

        TraceContextTextMapPropagator().inject(headers)
    return headers


@contextmanager
def _open(name: str, traceparent: str | None) -> Iterator[Any]:
    """Open a span below the open one, or below that of a header, which may be empty."""
    from opentelemetry.context import Context  # noqa: PLC0415 - it is optional
    from opentelemetry.trace import SpanKind  # noqa: PLC0415
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    options: dict[str, Any] = {}
    if traceparent is not None:
        carrier: Mapping[str, str] = {TRACEPARENT: traceparent}
        parent = TraceContextTextMapPropagator().extract(carrier, Context())
        options = {"context": parent, "kind": SpanKind.SERVER}
    with _tracer.start_as_current_span(name, **options) as opened:
        try:
            yield opened
        finally:
            _mark(opened)


def _mark(opened: Any) -> None:
    for name, value in ids().items():
        opened.set_attribute(f"rtolap.{name}", value)
