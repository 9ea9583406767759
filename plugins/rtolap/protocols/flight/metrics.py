"""The metric of every Flight endpoint: `rtolap_<service>_flight_call_seconds{method, outcome}`.

`method` is do_get, do_put, do_action, …; `outcome` is ok, or the code of the error that the peer received. A
call ends with its last message, so that a stream's time holds its reader's.
"""

from __future__ import annotations

import time
from typing import Any

import pyarrow.flight as flight

from rtolap.base.metrics import Metrics
from rtolap.protocols.flight.errors import named


class FlightCalls(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Middleware of every Flight server."""

    def __init__(self, metrics: Metrics) -> None:
        self._seconds = metrics.histogram(
            "flight_call_seconds", "A Flight call, until its last message.", ("method", "outcome")
        )

    def start_call(self, info: Any, headers: dict[str, list[str] | list[bytes]]) -> _Call:
        return _Call(self, info.method.name.lower())

    def ended(self, method: str, error: Exception | None, took_s: float) -> None:
        outcome = "ok" if error is None else named("the service", method, error).code
        self._seconds.labels(method, outcome).observe(took_s)


class _Call(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, calls: FlightCalls, method: str) -> None:
        self._calls = calls
        self._method = method
        self._began_s = time.perf_counter()

    def call_completed(self, exception: Exception | None) -> None:
        self._calls.ended(self._method, exception, time.perf_counter() - self._began_s)
